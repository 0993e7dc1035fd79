"""The sinks against the models: what sinks/ does with its stores, in steps between which the process may die.

In: changes and a position. Out: rows, then the position. Each keeps the rules of its real counterpart: versions,
compare-and-set, transaction ids, generations; requests may be repeated, late, or answered too late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from cdc.errors import TransientError
from jobs.batch import Target
from jobs.twins import twin_name
from sinks.delta.held import Held
from sinks.protocol import Position
from tests.simulation.declaring import Print
from tests.simulation.stores import DeltaVersion, Generation, LedgerRow, Stores, VersionedStore
from tests.simulation.tables import Values
from tests.simulation.views import Rows
from tests.simulation.world import Steps, World

Changes = Mapping[str, tuple[int, Values | None]]


class SimulatedSink(Protocol):
    """sinks.protocol.Sink in steps."""

    def position(self) -> Position | None: ...

    def write(self, changes: Changes, position: Position) -> Steps: ...

    def replace(self, rows: Changes, position: Position) -> Steps: ...

    def advance(self, position: Position) -> Steps: ...

    def adopt(self, loaded: Any, position: Position) -> Steps: ...

    def supersede(self, former: Any, loaded: Any, position: Position) -> Steps: ...

    def clear(self) -> None: ...


class DeltaSink:
    """One Delta table, as one process knows it."""

    def __init__(self, world: World, stores: Stores, target: Target, declared: Print) -> None:
        self._world = world
        self._stores = stores
        self._target = target
        self._declared = declared
        self._generation = 0
        self._turn = 0
        self.version = -1

    def position(self) -> Position | None:
        """The newest commit's position, or the ledger's if it names that very version."""
        latest = self._latest()
        self._generation, self._turn = (latest.generation, latest.turn) if latest is not None else (0, 0)
        if latest is None or latest.position is None or latest.declared != self._declared:
            return None
        self.version = latest.number
        row = self._stores.ledger[-1].get(self._target) if self._stores.ledger else None
        return row.position if row is not None and row.version == latest.number else latest.position

    def write(self, changes: Changes, position: Position) -> Steps:
        """A merge: rows, position and turn in one commit."""
        yield "before merge"
        base = self._latest()
        if base is None or base.position is None:
            raise TransientError("the table was removed meanwhile")
        rows = dict(base.rows)
        for key, (_, row) in changes.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        yield from self._commit(base, rows, self._generation, position)

    def replace(self, rows: Changes, position: Position) -> Steps:
        """An overwrite, which begins a new generation."""
        yield "before overwrite"
        base = self._latest()
        generation = self._stores.next_generation()
        yield from self._commit(base, {key: row for key, (_, row) in rows.items() if row}, generation, position)
        self._generation = generation

    def advance(self, position: Position) -> Steps:
        """Nothing: the ledger will say that the version still is the state."""
        yield "nothing to write"

    def adopt(self, loaded: Any, position: Position) -> Steps:
        """The twin's files in one commit, of the same generation."""
        yield "before adoption"
        self.held()
        rows = loaded.rows_at(loaded.held())
        yield "files moved"
        yield from self._commit(self._latest(), rows, self._generation, position)

    def supersede(self, former: Any, loaded: Any, position: Position) -> Steps:
        """The same in a new generation, over what the former declaration's sink knows, or nobody."""
        yield "before adoption"
        self._turn, generation = (former or self).turn_as_left(), self._stores.next_generation()
        rows = loaded.rows_at(loaded.held())
        yield "files moved"
        yield from self._commit(self._latest(), rows, generation, position)
        self._generation = generation

    def clear(self) -> None:
        """What killed loads left."""
        self._stores.delta.pop(replace(self._target, view=twin_name(self._target.view)), None)

    def held(self) -> Held:
        """The rows that this process located or wrote, if they still are what the table holds."""
        latest = self._latest()
        if latest is None or (latest.generation, latest.turn) != (self._generation, self._turn):
            raise TransientError("another process has written the table, or it is gone")
        return Held(latest.number, latest.generation, latest.turn)

    def turn_as_left(self) -> int:
        """The table's, of whatever declaration, if it still is what this process located or wrote."""
        latest = self._latest()
        if (self._generation, self._turn) != ((latest.generation, latest.turn) if latest is not None else (0, 0)):
            raise TransientError("another process has written the table")
        return self._turn

    def rows_at(self, held: Held) -> Rows:
        """The rows of a version."""
        return self._stores.delta[self._target][held.version].rows

    def ledger_row(self, position: Position) -> LedgerRow:
        """What this process knows: its own version, not the newest."""
        return LedgerRow(self.version, position)

    def _commit(
        self, base: DeltaVersion | None, rows: Mapping[str, Values], generation: int, position: Position
    ) -> Steps:
        if base is not None and base.turn > self._turn:
            raise TransientError("another process took this turn")
        yield "files written"
        latest = self._latest()
        if latest is not base or self._world.happens("delta conflict"):
            raise TransientError("another writer committed first")
        turn = (base.turn if base else 0) + 1
        number = base.number + 1 if base else 0
        self._stores.commit_delta(self._target, DeltaVersion(number, rows, generation, position, turn, self._declared))
        if self._world.happens("delta reply lost") and self._world.chance(0.5):
            raise TransientError("the commit's answer was lost")
        self.version, self._turn = number, turn
        yield "delta committed"

    def _latest(self) -> DeltaVersion | None:
        versions = self._stores.delta.get(self._target)
        return versions[-1] if versions else None


class VersionedSink:
    """Search or cache, as one process knows it."""

    def __init__(
        self,
        world: World,
        stores: Stores,
        target: Target,
        declared: Print,
        is_owner: Callable[[], bool],
        form: int,
    ) -> None:
        self._world = world
        self._stores = stores
        self._target = target
        self._declared = declared
        self._is_owner = is_owner
        self._form = form
        self._known: tuple[int | None, Position | None] = None, None
        stores.versioned.setdefault(target, VersionedStore())

    def position(self) -> Position | None:
        """From the store alone."""
        if not self._is_ours:
            self._known = None, None
            return None
        self._known = self._store.live, self._store.standing
        return self._store.standing

    def write(self, changes: Changes, position: Position) -> Steps:
        """Compare and set every row, then move the position."""
        generation, read = self._require()
        yield "before rows"
        yield from self._put_all(generation, changes)
        yield "rows written"
        self._move(generation, read, position)
        yield "position moved"

    def replace(self, rows: Changes, position: Position) -> Steps:
        """Load a generation beside the live one, then switch."""
        store = self._store
        for number, held in list(store.generations.items()):
            if held.state != "live":
                del store.generations[number]
        generation = self._stores.next_generation()
        store.generations[generation] = Generation()
        yield "generation begun"
        yield from self._put_all(generation, rows)
        yield "generation loaded"
        if not self._stores.switch(self._target, generation, position, self._declared, self._form):
            raise TransientError("the store was emptied meanwhile")
        self._known = generation, position
        yield "generation switched"

    def adopt(self, loaded: Any, position: Position) -> Steps:
        """Switch to the twin's generation."""
        yield from self.supersede(self, loaded, position)

    def supersede(self, former: Any, loaded: Any, position: Position) -> Steps:
        """The same over what the former declaration's sink knows, or nobody."""
        (former or self).require_as_left()
        yield "before switch"
        if not self._stores.switch(self._target, loaded.generation, position, self._declared, self._form):
            raise TransientError("the store was emptied meanwhile")
        self._known = loaded.generation, position
        yield "generation switched"

    def clear(self) -> None:
        """What killed loads left."""
        self._store.generations = {
            number: held for number, held in self._store.generations.items() if held.state == "live"
        }

    def advance(self, position: Position) -> Steps:
        """Move the position alone."""
        generation, read = self._require()
        yield "before position"
        self._move(generation, read, position)
        yield "position moved"

    @property
    def _store(self) -> VersionedStore:
        return self._stores.versioned[self._target]

    @property
    def _is_ours(self) -> bool:
        """Whether the store's rows are of this declaration and form."""
        return (self._store.declared, self._store.form) == (self._declared, self._form)

    def _require(self) -> tuple[int, Position]:
        """What this process knows, if nobody has emptied, switched or moved it: its changes fit nothing else."""
        generation, standing = self._known
        if generation is None or standing is None or (self._store.live, self._store.standing) != self._known:
            raise TransientError("the rows went away")
        return generation, standing

    def require_as_left(self) -> None:
        """What is stored of this declaration, if anything, is what this process located or wrote."""
        store = self._store
        if self._known != ((store.live, store.standing) if self._is_ours else (None, None)):
            raise TransientError("another process has written the store")

    def _put_all(self, generation: int, changes: Changes) -> Steps:
        rng, world = self._world.rng, self._world
        items = list(changes.items())
        rng.shuffle(items)
        half = rng.randint(0, len(items))
        for number, (key, (lsn, row)) in enumerate(items):
            if number == half:
                yield "some rows written"
            put = partial(self._stores.put, self._target, generation, key, lsn, row)
            if world.happens("store request late"):
                world.late.append(put)
                raise TransientError("the store did not answer")
            if world.happens("store request repeated"):
                world.late.append(put)
            if not put():
                raise TransientError("the rows went away")

    def _move(self, generation: int, read: Position, position: Position) -> None:
        if self._world.happens("store request late"):
            self._world.late.append(lambda: self._arrive(generation, read, position))
            raise TransientError("the store did not answer")
        if not self._stores.move(self._target, generation, read, position, alone=self._is_owner()):
            raise TransientError("the store was emptied, switched or moved meanwhile")
        self._known = generation, position

    def _arrive(self, generation: int, read: Position, position: Position) -> None:
        self._stores.move(self._target, generation, read, position, alone=False)


class VersionedTwin(VersionedSink):
    """A generation beside the live one; where it stands is in this process's memory."""

    generation = 0

    def write(self, changes: Changes, position: Position) -> Steps:
        """Compare and set every row."""
        yield "before rows"
        yield from self._put_all(self.generation, changes)

    def replace(self, rows: Changes, position: Position) -> Steps:
        """Load it."""
        self.generation = self._stores.next_generation()
        self._store.generations[self.generation] = Generation()
        yield "generation begun"
        yield from self._put_all(self.generation, rows)

    def advance(self, position: Position) -> Steps:
        """Nothing to write."""
        yield "nothing to write"


def open_twin(world: World, stores: Stores, live: Target, twin: Target, declared: Print) -> DeltaSink | VersionedTwin:
    """An empty sink beside a live one."""
    if live.sink == "delta":
        stores.delta.pop(twin, None)
        return DeltaSink(world, stores, twin, declared)
    return VersionedTwin(world, stores, live, declared, lambda: True, 0)


def open_sink(
    world: World,
    stores: Stores,
    target: Target,
    declared: Print,
    form: int = 0,
    is_owner: Callable[[], bool] = lambda: True,
) -> DeltaSink | VersionedSink:
    """The sink of a target, opened anew as by a new process."""
    if target.sink == "delta":
        return DeltaSink(world, stores, target, declared)
    return VersionedSink(world, stores, target, declared, is_owner, form)
