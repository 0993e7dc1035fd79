"""The swap: what was loaded beside is shown in every sink, each in one step, the tables before what follows them.

In: the machine's Swap, the twins, the sinks that show them from now on. Out: rows that readers see. Keeps true: whoever
is killed in between leaves each sink right where it stands, with rows of one declaration alone; a position names what
its rows were computed from as it is called by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc.log import get
from cdc.lsn import format_lsn
from jobs.batch import TABLE, Target
from jobs.machine import Swap
from jobs.pipeline import Pipeline, held_tables
from jobs.rebuild.loading import Loaded
from jobs.refresh.refresher import Refresher
from jobs.refresh.ways import noted
from jobs.twins import is_twin_name, live_name
from jobs.unfit import LackingRows
from sinks.history.columns import HISTORY
from sinks.protocol import Position, Sink, SwappedSink

_log = get(__name__)


def show(effect: Swap, loaded: Loaded, before: Pipeline, after: Pipeline, known: tuple[Refresher, LackingRows]) -> None:
    """Sink by sink; `after` is another pipeline than `before` where views are declared otherwise from now on."""
    queries, lacking = known
    former = {(target.view, target.sink): sink for target, sink in before.sinks.items()}
    for target, twin in effect.twins.items():
        position = _position(known, after, (target, twin), effect.positions[target])
        sink = swapped(after.sinks[target])
        if after is before:
            sink.adopt(loaded.sinks[twin], position)
        else:
            if (known_by := former.get((target.view, target.sink))) is None:
                sink.position()  # nobody has looked yet at what may have been left there
            sink.supersede(known_by, loaded.sinks[twin], position)
        lacking.settle(target, position.unfit)
        queries.swapped(target, position)
        _log.info("view swapped", view=target.view, sink=target.sink, lsn=format_lsn(position.lsn))
    for spec in loaded.specs:
        queries.leave(spec.name)
    for target in effect.twins:
        swapped(after.sinks[target]).clear()


def clear_beside(sinks: Mapping[Target, Sink]) -> None:
    """Remove what was loaded and never shown."""
    for target, sink in sinks.items():
        if target.sink != HISTORY and isinstance(sink, SwappedSink):
            sink.clear()


def swapped(sink: Sink) -> SwappedSink:
    """The sink, which can hold rows beside those that readers see."""
    assert isinstance(sink, SwappedSink)
    return sink


def _position(
    known: tuple[Refresher, LackingRows], after: Pipeline, pair: tuple[Target, Target], position: Position
) -> Position:
    """Where the live one stands then; what it was computed from may be tables that were swapped before it."""
    (target, twin), (queries, lacking) = pair, known
    if not target.is_derived:
        return lacking.marked(twin, position)
    tables = held_tables(after.sinks)
    if target.sink != TABLE:
        return replace(position, offsets=noted({target.view: tables[target.view].held()}))
    marked = queries.marked(twin, position)
    shown = noted({live_name(name): tables[live_name(name)].held() for name in marked.offsets if is_twin_name(name)})
    return replace(marked, offsets={**{n: at for n, at in marked.offsets.items() if not is_twin_name(n)}, **shown})
