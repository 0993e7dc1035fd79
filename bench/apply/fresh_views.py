"""From commit to visible in everything: five tables, a thousand changes a second over all of them, three views.

In: a Field with these views. Out: percentiles in seconds. Ours: until the ledger names an LSN past the change, at which
all tables and views stand. The peer's: until its mirror has it, and a computation of all views that began after that is
done.
"""

from __future__ import annotations

import bisect
import json
import time
from collections.abc import Iterator, Mapping, Sequence

from bench.apply.field import Field
from bench.apply.freshness import PER_SECOND, WARM_UP_S, Load, commits, in_turns, places, waits
from bench.apply.result import Figures
from bench.apply.sides import Ours, Recipe, Side
from bench.apply.versions import Ends
from jobs.ledger import Ledger

VIEWS: Mapping[str, str] = {
    "order_customers": "SELECT o.id, o.amount, o.mark, c.name FROM orders o JOIN customers c ON c.id = o.customer",
    "by_customer": "SELECT customer, count(*) AS orders, sum(amount) AS amount, max(mark) AS mark "
    "FROM orders_2 GROUP BY customer",
    "by_region": "SELECT c.region, count(*) AS orders, sum(o.mark) AS marks "
    "FROM orders_3 o JOIN customers c ON c.id = o.customer GROUP BY c.region",
}
_LOOK_S = 0.02


def fresh_views(at: Field, seconds: float, repeats: int, *, target: str) -> Figures:
    """Of everything at once."""
    return in_turns(at, lambda side: [*_waits(at, side, seconds)], repeats, target=target)


def _waits(at: Field, side: Side, seconds: float) -> Iterator[float]:
    at.publish("SELECT 1")
    start = at.ends()
    at.marks += 10_000_000
    side.turn(start)
    side.go()
    ledger = Ledger(at.pipeline.settings.delta_root)
    stands: list[tuple[float, int]] = []
    with Load(at, PER_SECOND, at.marks, at.tables) as load:
        began = time.monotonic()
        until = began + WARM_UP_S + seconds
        while time.monotonic() < until:
            _look(side, at, ledger, stands)
    at.publish("SELECT 1")
    end = at.ends()
    side.wait_for(end)
    last = time.monotonic() + 60
    while time.monotonic() < last and not _is_done(at, side, stands):
        _look(side, at, ledger, stands)
    side.hold()
    marks = {mark: when for mark, when in load.committed.items() if began + WARM_UP_S < when < until}
    for table in at.tables:
        own = {mark: when for mark, when in marks.items() if load.table_of(mark) == table}
        if isinstance(side, Ours):
            yield from _until_named(own, commits(at, table, start[table], end[table]), stands)
        else:
            yield from _until_computed(at, side, table, own, (start[table], end[table]))


def _look(side: Side, at: Field, ledger: Ledger, stands: list[tuple[float, int]]) -> None:
    for table in at.tables:
        side.look(table)
    state = ledger.read() if isinstance(side, Ours) else None
    if state is not None and (not stands or stands[-1][1] < state.lsn):
        stands.append((time.monotonic(), state.lsn))
    time.sleep(_LOOK_S)


def _is_done(at: Field, side: Side, stands: Sequence[tuple[float, int]]) -> bool:
    """Whether all that was measured is visible by now."""
    newest = at.progress.newest
    assert newest is not None
    if isinstance(side, Ours):
        return bool(stands) and stands[-1][1] >= newest.lsn
    mirrored = max(side.versions[table].seen[-1].at_s for table in at.tables)
    return any(begun >= mirrored for begun, _ in _rounds(side))


def _until_named(
    committed: Mapping[int, float], lsns: Mapping[int, int], stands: Sequence[tuple[float, int]]
) -> Iterator[float]:
    for mark, when in committed.items():
        first = bisect.bisect_right(stands, lsns[mark], key=lambda stand: stand[1])
        yield max(0.0, stands[first][0] - when)


def _until_computed(
    at: Field, side: Side, table: str, committed: Mapping[int, float], between: tuple[Ends, Ends]
) -> Iterator[float]:
    rounds = _rounds(side)
    seen = [(each.at_s, each.ends) for each in side.versions[table].seen]
    mirrored = waits(committed, places(at, table, *between), seen)
    for when, wait in zip(committed.values(), mirrored, strict=True):
        first = bisect.bisect_left(rounds, when + wait, key=lambda each: each[0])
        yield rounds[first][1] - when


def _rounds(side: Side) -> list[tuple[float, float]]:
    """When each computation of all views began and ended."""
    assert isinstance(side, Recipe)
    path = side.folder / "rounds.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(begun, ended) for begun, ended in map(json.loads, lines)]
