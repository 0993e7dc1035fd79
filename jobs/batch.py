"""One batch of apply, planned: which range of which topic goes into which sink, so that all end at one LSN.

In: where every sink stands, and a boundary of the progress topic. Out: tasks. Keeps true: after it all sinks stand
at the same commit LSN, but for those of tables that stopped alone; what its offsets can't bring there is replaced.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from cdc.errors import OperatorError
from cdc.lsn import format_lsn
from cdc.progress import Progress, Stop
from sinks.history.columns import HISTORY
from sinks.protocol import Position

Offsets = tuple[int, ...]

TABLE: Final = "delta"
"""The sink that a view's readers, and the views above it, read."""

STALE_US: Final = 12 * 3600 * 1_000_000
"""What lay unread for longer may have lacked a delete by now, which compaction took away; half of what is kept."""

PART_STALE_US: Final = 1800 * 1_000_000
"""How old may get what is published in parts (a large transaction, say) before compaction gives up older rows for it;
half of min.compaction.lag.ms."""


@dataclass(frozen=True, slots=True)
class Target:
    """One view in one sink, and the topic that its rows come from.

    A query's rows come from Delta tables: its `level` is above those of the tables that it reads, and its other sinks'
    are above its own table's. `below` are the topics of all that it is made of, `reads` the views whose tables it
    needs.
    """

    view: str
    sink: str
    topic: str
    level: int = 0
    below: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    @property
    def is_derived(self) -> bool:
        """Whether its rows come from Delta tables."""
        return self.level > 0

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that its rows depend on."""
        return self.below if self.is_derived else (self.topic,)


class Mode(enum.Enum):
    """What a task does."""

    WRITE = "write"
    REPLACE = "replace"
    ADVANCE = "advance"


@dataclass(frozen=True, slots=True)
class Task:
    """Bring one target to `position` from the records of [start, end) with floor <= commit LSN < position.lsn.

    A derived target has no offsets: it is brought there from Delta tables that stand there when its `stage` begins.
    """

    target: Target
    mode: Mode
    start: Offsets
    end: Offsets
    floor_lsn: int
    position: Position
    stage: int = 0


def plan(
    positions: Mapping[Target, Position | None],
    boundary: Progress,
    ceiling_lsn: int,
    anew: Collection[Target] = (),
    now_us: int = 0,
    stayed: Collection[str] = (),
) -> list[Task]:
    """The tasks that bring every target to `ceiling_lsn`, which is the boundary's LSN or one before it.

    Those that are wanted `anew` are replaced. The queries that `stayed` behind alone are tried again.
    """
    assert ceiling_lsn <= boundary.lsn
    # Compaction goes on while capture rests, so the newest boundary does not say how late it is.
    now_us = max(now_us, boundary.source_ts_us)
    behind = {target.view for target in positions if is_stopped(target, boundary, ceiling_lsn)}
    tasks = _caught_up(positions, behind.union(stayed))
    for target, position in positions.items():
        if target.is_derived:
            tasks += _derived(target, position, boundary, ceiling_lsn, anew)
            continue
        stop = boundary.stopped.get(target.topic)
        if stop is not None and stop.covers(ceiling_lsn):
            tasks += _up_to_stop(target, position, boundary, ceiling_lsn, stop, now_us)
            continue
        floor_lsn = _floor(stop, ceiling_lsn)
        if (
            position is None
            or position.lsn < _whole_from(stop, ceiling_lsn)
            or target in anew
            or _is_stale(target, position, boundary, now_us)
        ):
            tasks.append(_replace(target, boundary, ceiling_lsn, floor_lsn))
        elif position.lsn > boundary.lsn:
            raise _ahead(target, position, boundary)
        elif position.lsn < ceiling_lsn:
            tasks.append(_write(target, position, boundary, ceiling_lsn))
    return tasks


def hides_rows(newest: Progress | None, now_us: int) -> bool:
    """Whether rows of the newest boundary may be compacted away, for those of what is not whole yet.

    With the next boundary newer rows stand for them: until then no batch may begin.
    """
    return newest is not None and not newest.is_boundary and now_us - newest.source_ts_us > PART_STALE_US


def is_stopped(target: Target, boundary: Progress, lsn: int | None = None) -> bool:
    """Whether the target can't stand at `lsn` (else the boundary's), since its topic lacks what came before it."""
    stops = (boundary.stopped.get(topic) for topic in target.topics)
    return any(stop is not None and stop.covers(boundary.lsn if lsn is None else lsn) for stop in stops)


def held_back(task: Task, failed: Collection[str]) -> bool:
    """Whether what it reads did not get to the task's position, these views' tables having failed in the same batch.

    What only comes to where its own table stands already is not.
    """
    return task.stage > 0 and not set(failed).isdisjoint(task.target.reads)


def stages(tasks: Iterable[Task]) -> list[list[Task]]:
    """The tasks in the order in which they are carried out; those of one stage in any order, or at once."""
    ordered = sorted(tasks, key=lambda task: task.stage)
    return [list(group) for _, group in groupby(ordered, key=lambda task: task.stage)]


def _caught_up(positions: Mapping[Target, Position | None], behind: Collection[str]) -> list[Task]:
    """Before a query's table moves on, its other sinks come to where it stands.

    One of them may have been killed while it wrote, and holds rows of there: what its table's next change leaves alone
    would never be put right. An empty one is loaded there if its view is to stay `behind`.
    """
    tables = {target.view: position for target, position in positions.items() if target.sink == TABLE}
    tasks = []
    for target, position in positions.items():
        table = tables.get(target.view)
        if not target.is_derived or target.sink == TABLE or table is None:
            continue
        if position is None and target.view in behind:
            tasks.append(Task(target, Mode.REPLACE, (), (), 0, table))
        elif position is not None and position.lsn < table.lsn:
            tasks.append(Task(target, Mode.WRITE, (), (), position.lsn, table))
    return tasks


def _derived(
    target: Target, position: Position | None, boundary: Progress, ceiling_lsn: int, anew: Collection[Target]
) -> list[Task]:
    """A query is refreshed from tables that stand at the ceiling; over a table that stopped it stays where it is."""
    if is_stopped(target, boundary, ceiling_lsn):
        return []
    goal = Position(ceiling_lsn, boundary.source_ts_us, {})
    if position is None or target in anew or position.lsn < boundary.origin_lsn:
        return [Task(target, Mode.REPLACE, (), (), 0, goal, target.level)]
    if position.lsn > boundary.lsn:
        raise _ahead(target, position, boundary)
    return [Task(target, Mode.WRITE, (), (), position.lsn, goal, target.level)] if position.lsn < ceiling_lsn else []


def _up_to_stop(
    target: Target, position: Position | None, boundary: Progress, ceiling_lsn: int, stop: Stop, now_us: int
) -> list[Task]:
    """The target ends where its table stopped. An empty one waits: the topic may be about to be filled anew.

    So does one from which compaction has taken what it lacks, and one from before the table was whole the last time.
    """
    is_before = position is not None and position.lsn >= stop.whole and ceiling_lsn >= stop.lsn
    if position is None or not is_before or position.lsn >= stop.lsn or _is_stale(target, position, boundary, now_us):
        return []
    return [_write(target, position, boundary, stop.lsn)]


def _floor(stop: Stop | None, ceiling_lsn: int) -> int:
    """Once a table was read again, all that its topic held before is void."""
    return stop.since - 1 if stop is not None and stop.since is not None and ceiling_lsn >= stop.since else 0


def _whole_from(stop: Stop | None, ceiling_lsn: int) -> int:
    """A target that stands before its table was whole again is replaced."""
    if stop is None:
        return 0
    return stop.until if stop.until is not None and ceiling_lsn >= stop.until else stop.whole


def _replace(target: Target, boundary: Progress, ceiling_lsn: int, floor_lsn: int) -> Task:
    end = _end(target, boundary)
    start = (0,) * len(end)
    return Task(target, Mode.REPLACE, start, end, floor_lsn, _position(target, start, end, boundary, ceiling_lsn))


def _write(target: Target, position: Position, boundary: Progress, ceiling_lsn: int) -> Task:
    end = _end(target, boundary)
    start = position.offsets.get(target.topic, (0,) * len(end))
    if len(start) != len(end) or any(a > b for a, b in zip(start, end, strict=True)):
        raise OperatorError(
            f"view {target.view} has read further in {target.topic} than the topic goes",
            f"was the topic deleted and made again? `afterimage rebuild {target.view}`",
            code="TOPIC_CHANGED",
        )
    mode = Mode.WRITE if start != end else Mode.ADVANCE
    return Task(target, mode, start, end, position.lsn, _position(target, start, end, boundary, ceiling_lsn))


def _position(target: Target, start: Offsets, end: Offsets, boundary: Progress, ceiling_lsn: int) -> Position:
    """Short of the boundary, the records after the ceiling are still to be read: the offsets stay where they are."""
    offsets = end if ceiling_lsn == boundary.lsn else start
    return Position(ceiling_lsn, boundary.source_ts_us, {target.topic: offsets})


def _end(target: Target, boundary: Progress) -> Offsets:
    end = boundary.ends.get(target.topic)
    if end is None:
        raise OperatorError(
            f"view {target.view} reads {target.topic}, which capture does not write",
            "is its table still in source.tables? remove the view, or capture the table again",
            code="TABLE_NOT_CAPTURED",
        )
    return end


def _is_stale(target: Target, position: Position, boundary: Progress, now_us: int) -> bool:
    """Of another chain of records, or so late that compaction may have taken what it has not read."""
    unread = position.offsets.get(target.topic) != _end(target, boundary)
    # What a recovery brings is an outcome: a history has to know that single changes are missing.
    skipped = target.sink == HISTORY and position.lsn < boundary.recovered_lsn
    return position.lsn < boundary.origin_lsn or skipped or (unread and now_us - position.source_ts_us > STALE_US)


def _ahead(target: Target, position: Position, boundary: Progress) -> OperatorError:
    return OperatorError(
        f"view {target.view} ({target.sink}) stands at {format_lsn(position.lsn)}, past the topics at "
        f"{format_lsn(boundary.lsn)}",
        f"the topics were started over: `afterimage rebuild {target.view}`",
        code="VIEW_AHEAD",
    )
