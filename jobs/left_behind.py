"""Sinks that a view's file names no more: their rows stay as they were, and are said to, until they are dropped.

In: the texts that live views followed before, what they are declared as now, what is kept of views, the ledger. Out:
by view, the sinks that nobody keeps up to date. Keeps true: a sink that its view has, or is about to have, is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.settings import Settings
from jobs.batch import TABLE
from jobs.control import ControlServer
from jobs.control.kept import Kept, Left
from jobs.control.proved import kept_records
from jobs.control.records import Withdrawn
from jobs.declare.filed import named_sinks
from jobs.declare.source import Source
from jobs.ledger import LedgerState
from sinks.spec import Kind, ViewSpec

Specs = Mapping[str, ViewSpec]


def left_behind(kept: Iterable[Kept], ledger: LedgerState | None, *declared: Specs) -> dict[str, tuple[str, ...]]:
    """Of views that are declared in one of these ways; a table that is left has its row in the ledger still."""
    own: dict[str, set[str]] = {}
    for spec in (spec for specs in declared for spec in specs.values() if spec.kind is not Kind.MIRROR):
        own.setdefault(spec.name, set()).update(_sinks(spec))
    found = {(each.view, each.sink) for each in kept if isinstance(each, Left)}
    found |= {(view, TABLE) for view in (ledger.rows if ledger is not None else {})}
    left = {view: tuple(sorted({sink for whose, sink in found if whose == view} - own[view])) for view in own}
    return {view: sinks for view, sinks in left.items() if sinks}


def tell_left(settings: Settings, control: ControlServer, former: Mapping[str, str], specs: Specs) -> None:
    """Some views follow other texts from now on than these; a sink that is named again is no longer left."""
    if not former:
        return
    known = {each for each in kept_records(settings) if isinstance(each, Left) and each.view in former}
    for view, text in former.items():
        own = _sinks(specs[view])
        gone = {*(named_sinks(Source("a former file", text)) or ())} - own - {TABLE}
        for record in {Left(view, sink) for sink in gone} - known:
            control.keep(record)
        for record in known:
            if record.view == view and record.sink in own:
                control.keep(Withdrawn(record.id))


def _sinks(spec: ViewSpec) -> set[str]:
    return {option.name for option in spec.sinks}
