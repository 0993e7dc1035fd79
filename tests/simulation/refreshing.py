"""A model of jobs/refresh: queries kept up to date from Delta tables, by the real rules of which way leads there.

In: tasks of derived targets. Out: rows in sinks, in steps; whether the target got there. Keeps to jobs.refresh.ways,
refresher, relations, changes and failing, and to what they note in positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.batch import TABLE, Mode, Target, Task
from jobs.refresh.ways import Way, is_unchanged, noted, way
from jobs.twins import live_name
from sinks.delta.held import Held
from sinks.protocol import Position
from tests.simulation.declaring import Print
from tests.simulation.queries import Failed, computed, key_of
from tests.simulation.sinks import Changes, DeltaSink, SimulatedSink
from tests.simulation.tables import Values
from tests.simulation.world import Steps, World

Rows = Mapping[str, Values]


@dataclass(frozen=True, slots=True)
class Moved:
    """See jobs.refresh.relations.Moved."""

    before: Held
    changes: Changes


class SimulatedRefresher:
    """Of one session."""

    def __init__(self, world: World, sinks: Mapping[Target, SimulatedSink], declared: Mapping[str, Print]) -> None:
        self._world = world
        self.declared = dict(declared)
        """By view, twins as well."""
        self.sinks = dict(sinks)
        self._tables = {target.view: sink for target, sink in sinks.items() if isinstance(sink, DeltaSink)}
        self._positions: dict[Target, Position] = {}
        self._moved: dict[str, Moved] = {}
        self._failed_over: dict[str, Mapping[str, Held]] = {}
        self.failing: set[str] = set()

    def locate(self, positions: Mapping[Target, Position | None]) -> None:
        """Know from what each sink's rows were computed."""
        self._positions = {target: position for target, position in positions.items() if position is not None}

    def marked(self, target: Target, position: Position) -> Position:
        """With what the rows were computed from."""
        known = self._positions.get(target)
        return replace(position, offsets=known.offsets) if target.is_derived and known is not None else position

    def table(self, name: str) -> DeltaSink:
        """A relation's table."""
        return self._tables[name]

    def held(self, name: str) -> Held:
        """What it holds now."""
        return self._tables[name].held()

    def join(
        self,
        sinks: Mapping[Target, SimulatedSink],
        positions: Mapping[Target, Position],
        declared: Mapping[str, Print],
    ) -> None:
        """Twins go along with the batches."""
        self.sinks |= sinks
        self.declared |= declared
        self._tables |= {target.view: sink for target, sink in sinks.items() if isinstance(sink, DeltaSink)}
        self._positions |= positions

    def leave(self, view: str) -> None:
        """It does so no longer."""
        self._tables.pop(view, None)
        self._failed_over.pop(view, None)
        self.failing.discard(view)
        for target in [target for target in self.sinks if target.view == view]:
            del self.sinks[target]
            self._positions.pop(target, None)

    def renew(self, target: Target, sink: SimulatedSink) -> None:
        """It is declared otherwise from now on."""
        self.sinks[target] = sink
        if isinstance(sink, DeltaSink):
            self._tables[target.view] = sink

    def swapped(self, target: Target, position: Position) -> None:
        """It shows its twin's rows."""
        self._positions[target] = position

    def note(self, view: str, before: Held, changes: Changes) -> None:
        """The batch has written this."""
        self._moved[view] = Moved(before, changes)

    def end_batch(self) -> None:
        """It is over."""
        self._moved.clear()

    def try_again(self, view: str) -> None:
        """Somebody asks for it."""
        self._failed_over.pop(view, None)

    def hold_back(self, targets: Iterable[Target]) -> None:
        """What these read stands behind."""
        for target in targets:
            if target.sink == TABLE:
                self._world.saw("query waits")
                self._failed_over.pop(target.view, None)
                self.failing.add(target.view)

    def run(self, task: Task) -> Steps:
        """Whether it got there."""
        if task.target.sink != TABLE:
            return (yield from self._follow(task))
        view = task.target.view
        now = {name: self._tables[name].held() for name in task.target.reads}
        read = self._failed_over.get(view)
        if read is not None and is_unchanged(read, now):
            self._world.saw("query left alone")
            return False
        yield "relations held"
        try:
            yield from self._table(task, now)
        except Failed:
            self._world.saw("query fails")
            self._failed_over[view] = now
            self.failing.add(view)
            return False
        self._failed_over.pop(view, None)
        self.failing.discard(view)
        return True

    def _table(self, task: Task, now: Mapping[str, Held]) -> Steps:
        target, sink = task.target, self._tables[task.target.view]
        position = replace(task.position, offsets=noted(now))
        if task.mode is Mode.REPLACE:
            yield from sink.replace(_upserts(self._answer(target, now), position.lsn), position)
        else:
            stored = sink.held()
            offsets = self._positions[target].offsets
            known = {name: Held.of(offsets.get(name)) for name in now}
            changes = self._since(target, known, now, stored, position.lsn)
            yield "changes computed"
            if changes:
                yield from sink.write(changes, position)
            else:
                yield from sink.advance(position)
            self._moved[target.view] = Moved(stored, changes)
        self._positions[target] = position

    def _since(
        self, target: Target, known: Mapping[str, Held | None], now: Mapping[str, Held], stored: Held, lsn: int
    ) -> Changes:
        if is_unchanged(known, now):
            self._world.saw("refresh: unchanged")
            return {}
        shown = self._tables[target.view].rows_at(stored)
        keys: set[str] | None = set()
        for name, held in now.items():
            images = self._images(name, known[name], held)
            keys = None if images is None or keys is None else keys | images
        self._world.saw("refresh: in full" if keys is None else "refresh: by keys")
        answer = self._answer(target, now, keys)
        mine = shown if keys is None else {key: row for key, row in shown.items() if key in keys}
        return _difference(mine, answer, lsn)

    def _images(self, name: str, known: Held | None, now: Held) -> set[str] | None:
        """The keys of the query's rows that the relation's changed rows belong to, before and after."""
        table, moved = self._tables[name], self._moved.get(name)
        led = way(known, now, moved.before if moved is not None else None)
        if led is Way.COMPARE and self._world.happens("old version is gone"):
            led = Way.ANEW
        self._world.saw("relation:", led.value)
        if led is Way.STAY:
            return set()
        if led is Way.ANEW or known is None:
            return None
        if led is Way.BATCH and moved is not None:
            before = table.rows_at(moved.before)
            rows = [row for key, (_, new) in moved.changes.items() for row in (before.get(key), new) if row is not None]
            return {key_of(name, row) for row in rows}
        was, rows_now = table.rows_at(known), table.rows_at(now)
        changed = {key for key in was.keys() | rows_now.keys() if was.get(key) != rows_now.get(key)}
        return {key_of(name, side[key]) for side in (was, rows_now) for key in changed if key in side}

    def _follow(self, task: Task) -> Steps:
        target, [name] = task.target, task.target.reads
        sink, table = self.sinks[target], self._tables[name]
        if task.stage == 0:
            self._world.saw("caught up:", task.mode.value)
        now = table.held()
        position = replace(task.position, offsets=noted({name: now}))
        known = Held.of(self._positions[target].offsets.get(name)) if target in self._positions else None
        moved = self._moved.get(name)
        led = way(known, now, moved.before if moved is not None else None)
        if led is Way.COMPARE and self._world.happens("old version is gone"):
            led = Way.ANEW
        self._world.saw("follow:", led.value)
        yield "follower begun"
        if task.mode is Mode.REPLACE or led is Way.ANEW or known is None:
            yield from sink.replace(_upserts(table.rows_at(now), position.lsn), position)
        elif led is Way.STAY:
            yield from sink.advance(position)
        elif led is Way.BATCH and moved is not None:
            yield from sink.write(moved.changes, position)
        else:
            changes = _difference(table.rows_at(known), table.rows_at(now), position.lsn)
            yield from sink.write(changes, position)
        self._positions[target] = position
        return True

    def _answer(self, target: Target, now: Mapping[str, Held], keys: set[str] | None = None) -> dict[str, Values]:
        rows = {live_name(name): self._tables[name].rows_at(held) for name, held in now.items()}
        return computed(live_name(target.view), self.declared[target.view][0], rows, keys)


def _upserts(rows: Rows, lsn: int) -> Changes:
    return {key: (lsn, row) for key, row in rows.items()}


def _difference(was: Rows, now: Rows, lsn: int) -> Changes:
    changed = {key: (lsn, row) for key, row in now.items() if was.get(key) != row}
    return {**changed, **{key: (lsn, None) for key in was if key not in now}}
