"""Views that nothing declares any more, dropped on request: rows in every sink, ledger row, what is told of them.

In: requests, between two batches. Out: answers. Keeps true: what is declared, or has a file that is only wrong, is
never dropped, but for sinks that its file names no more; the ledger's row goes first, so no query finds a table that is
half gone; a repeat ends what was begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cdc.errors import CdcError
from cdc.log import get
from cdc.settings import Settings
from jobs.batch import TABLE
from jobs.control import ControlServer, Kind, Request, State
from jobs.control.proved import kept_records
from jobs.control.records import Withdrawn
from jobs.declare.bodies import SUFFIX, body_of
from jobs.declare.view_name import is_name
from jobs.ledger import Ledger
from jobs.left_behind import left_behind
from sinks.registry import remove_view
from sinks.spec import Kind as SpecKind
from sinks.spec import ViewSpec

_log = get(__name__)


def refusal(settings: Settings, view: str, specs: Mapping[str, ViewSpec], left: Collection[str] = ()) -> str | None:
    """Why a view may not be dropped; those that have `left` sinks behind may be dropped from these."""
    if view in left:
        return None
    file = settings.views / f"{view}.sql"
    if is_name(view) and file.exists():
        return f"{view} is declared, and no sink is left that its file names no more: remove {file} first"
    above = view.removesuffix(SUFFIX)
    is_body = view.endswith(SUFFIX) and above not in specs and is_name(above)
    if (view in specs and specs[view].kind is not SpecKind.MIRROR) or (
        is_body and (settings.views / f"{above}.sql").exists()
    ):
        return f"{view} is what the LIMIT of {above} is cut from: remove the file of that one first"
    if view in specs:
        return f"{view} is a table that is captured: take it out of source.tables first"
    return None


class Dropper:
    """Of one apply process."""

    def __init__(self, settings: Settings, ledger: Ledger, control: ControlServer) -> None:
        self._settings = settings
        self._ledger = ledger
        self._control = control

    def attend(self, live: Mapping[str, ViewSpec], coming: Mapping[str, ViewSpec]) -> list[str]:
        """Do what is asked for; the views that are not there any more, at least where nothing keeps them."""
        asked = [request for request in self._control.requests() if request.kind is Kind.DROP]
        return [view for request in asked for view in self._drops(request, live, coming)]

    def _drops(self, request: Request, live: Mapping[str, ViewSpec], coming: Mapping[str, ViewSpec]) -> list[str]:
        """The view, and with it the body that its LIMIT was cut from."""
        view, specs = request.view or "", {**live, **coming}
        state, kept = self._ledger.read(), kept_records(self._settings)
        rows = dict(state.rows) if state is not None else {}
        left = left_behind(kept, state, live, coming)
        why = refusal(self._settings, view, specs, left)
        if why is None and view not in rows and not is_name(view):
            why = f"there is no view {view}"
        if why is not None:
            self._control.answer(request.id, State.FAILED, message=why)
            return []
        self._control.confirm_owner()
        dropped = [each for each in (view, body_of(view)) if each == view or (each in rows and each not in specs)]
        sinks = left.get(view)
        loses_table = sinks is None or TABLE in sinks
        known = [each for each in dropped if loses_table and rows.pop(each, None) is not None]
        if known:
            self._ledger.write(list(rows.values()))
        told, found = self._removed(dropped, sinks)
        if not (known or found):
            self._control.answer(request.id, State.FAILED, message=f"there is no view {view}: {told}")
            return []
        for record in kept:
            if record.view in dropped and (sinks is None or getattr(record, "sink", None) in sinks):
                self._control.keep(Withdrawn(record.id))
        self._control.answer(request.id, State.DONE, message=told)
        return dropped

    def _removed(self, views: Sequence[str], sinks: Collection[str] | None) -> tuple[str, list[str]]:
        """What is told of it, and where something was."""
        told, everywhere = [], list[str]()
        for view in views:
            found, errors = remove_view(self._settings, view, sinks)
            everywhere += found
            told.append(f"{view} {_told(found, errors)}" if len(views) > 1 else _told(found, errors))
            _log.info("view dropped", view=view, sinks=found, not_asked=[error.code for error in errors])
        return ", ".join(told), everywhere


def _told(found: list[str], errors: list[CdcError]) -> str:
    removed = f"removed from {', '.join(found)}" if found else "nothing of it was there"
    return "; ".join([removed, *(f"not looked at: {error.message}" for error in errors)])
