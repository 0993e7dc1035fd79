"""Views whose files fit the tables no longer: left out alone, and said to be so, while all others go on.

In: what is wrong with view files. Out: at a start an error for a file that was never live as it is; else the log, a
metric, and what commands tell. Keeps true: what only the tables have made wrong stops no start; a slip of the pen does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from cdc import metrics
from cdc.changes import Trouble
from cdc.errors import ConfigError
from cdc.log import get
from cdc.settings import Settings
from jobs.batch import TABLE
from jobs.control.declared import declared_texts
from jobs.declare import view_texts
from jobs.declare.bodies import SUFFIX, cut_text
from jobs.declare.filed import named_sinks
from jobs.ledger import Ledger
from jobs.pipeline import Pipeline
from jobs.prove import ViewProof

_log = get(__name__)

_DROP: Final = "or remove its file, and `afterimage drop {view}`: until then its rows stay as they were"


class LeftOutViews:
    """Of one apply process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._has_begun = False
        self._told: set[str] = set()
        self._shown: frozenset[str] = frozenset()

    def tell(self, view: str, error: ConfigError) -> None:
        """Its file is wrong: it goes on as it was declared before, or is left out; no start is made with a new one."""
        if not self._has_begun and not was_live(self._settings, view):
            raise error
        self._told.add(view)
        _log.error("view left out", view=view, code=error.code, reason=error.message, remedy=error.hint)

    def loaded(self, pipeline: Pipeline) -> None:
        """The session's views, without those that are left out."""
        self._has_begun = True
        left_out = frozenset(self._told - pipeline.specs.keys())
        self._told.clear()
        for view in self._shown | left_out:
            metrics.VIEW_STOPPED.labels(view).set(view in left_out)
        self._shown = left_out


def was_live(settings: Settings, view: str) -> bool:
    """Whether its file, or the one that it is the body of, says what it did when its rows were shown last."""
    texts = view_texts(settings.views, lambda *_: None)
    name = view if view in texts else view.removesuffix(SUFFIX)
    if name not in texts:
        return False
    return declared_texts(settings).get(name) in (texts[name].text, cut_text(name, texts[name]))


def trouble_of(view: str, error: ConfigError) -> Trouble:
    """Why a view that is left out stands still."""
    mend = error.hint or "correct its file"
    return Trouble(error.code, error.message, f"{mend}{' ' if mend.endswith('?') else '; '}{_DROP.format(view=view)}")


def is_left_out(view: str, wrong: Collection[str]) -> bool:
    """Whether it is one of these, or the body of one."""
    return view in wrong or view.removesuffix(SUFFIX) in wrong


def unproved(settings: Settings, wrong: Mapping[str, ConfigError]) -> list[ViewProof]:
    """Of each of them in each of its sinks: nothing says what its rows should be."""
    if not wrong:
        return []
    ledger = Ledger(settings.delta_root, settings.delta.storage_options).read()
    rows = ledger.rows if ledger is not None else {}
    return [
        ViewProof(view, sink, rows[view].lsn if view in rows else 0, 0.0, problem=f"left out: {_told(error)}")
        for view, error in wrong.items()
        for sink in sinks_of(settings, view)
    ]


def _told(error: ConfigError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def sinks_of(settings: Settings, view: str) -> tuple[str, ...]:
    """Where its rows are, as far as its file tells."""
    source = view_texts(settings.views, lambda *_: None).get(view)
    if source is None:
        return (TABLE,)
    named = named_sinks(source)
    return (TABLE,) if named is None else named
