"""Sinks that a view's file names no more: their rows stay as they were, and are said to, until they are dropped.

In: the texts that live views followed before, what they are declared as now, what is kept of views, the ledger. Out:
by view, the sinks that nobody keeps up to date. Keeps true: a sink that its view has, or is about to have, is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.errors import ConfigError
from cdc.settings import Settings
from jobs.batch import TABLE
from jobs.control import ControlServer
from jobs.control.kept import Kept, Left
from jobs.control.proved import kept_records
from jobs.control.records import Withdrawn
from jobs.declare.header import read_header
from jobs.declare.parse import parse_statement
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


class LeftSinks:
    """What apply has told of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: set[Left] | None = None

    def tell(self, control: ControlServer, former: Mapping[str, str], specs: Specs) -> None:
        """Views follow other texts from now on than these; a sink that is named again is no longer left."""
        if self._known is None:
            self._known = {each for each in kept_records(self._settings) if isinstance(each, Left)}
        for view, text in former.items():
            for sink in _named(text) - _sinks(specs[view]) - {TABLE}:
                self._known.add(Left(view, sink))
                control.keep(Left(view, sink))
        for again in [each for each in self._known if each.view in specs and each.sink in _sinks(specs[each.view])]:
            self._known.remove(again)
            control.keep(Withdrawn(again.id))

    def forget(self, view: str) -> None:
        """They were dropped, with what was told of them."""
        if self._known is not None:
            self._known = {each for each in self._known if each.view != view}


def _sinks(spec: ViewSpec) -> set[str]:
    return {option.name for option in spec.sinks}


def _named(text: str) -> set[str]:
    """The sinks of a text that was live once; of one that can't be read any more nothing is known."""
    source = Source("a former file", text)
    try:
        header = read_header(source, before=parse_statement(source).tokens[0].start)
    except ConfigError:
        return set()
    return {option.name for option in header.sinks}
