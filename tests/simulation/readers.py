"""A model of the readers of tables in chunks, beside one capture process.

In: the source as snapshots see it. Out: chunks and the oldest snapshots in use, in any order and after any delay. Keeps
to snapshot/table_readers.py and snapshot/chunk.py: settle first, plan in key order, so many chunks unmerged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cdc.backfill import Backfill, Chunk, Key
from cdc.changes import Relation
from cdc.envelope import TableEncoder
from cdc.merging import Fed, GivenUp
from cdc.visibility import Visibility
from tests.simulation.source import Source
from tests.simulation.world import World

UNMERGED_MAX = 4


@dataclass(slots=True)
class Table:
    """How far one table is planned."""

    backfill: Backfill
    planned: Key | None
    settles_at: int
    is_settled: bool = False
    is_whole: bool = False
    again: list[Chunk] = field(default_factory=list)


class SimulatedReaders:
    """`step` lets the readers do something; the rest is what capture calls."""

    def __init__(self, world: World, source: Source, encoder_of: Callable[[Relation], TableEncoder]) -> None:
        self._world = world
        self._source = source
        self._encoder_of = encoder_of
        self._tables: dict[str, Table] = {}
        self._reading: list[Chunk] = []
        self._read: list[Chunk] = []
        self._unmerged = 0
        self._newest: Visibility | None = None
        self._begun: list[Backfill] = []

    def ask(self, backfill: Backfill) -> None:
        """Somebody wants a table to be read."""
        self._begun.append(backfill)

    def read(self, backfill: Backfill) -> None:
        self._tables[backfill.id] = Table(backfill, backfill.done, self._source.next_xid())

    def take(self) -> Fed:
        for _ in range(self._world.rng.randint(0, 3) if not self._world.healed else 8):
            self._step()
        oldest = [chunk.sees for chunk in self._reading] or ([self._newest] if self._newest else [])
        begun, self._begun = self._begun, []
        given_up = [self._give_up(table.backfill) for table in self._failed()]
        read, self._read = self._read, []
        return Fed(begun=begun, given_up=given_up, chunks=read, oldest=oldest)

    def _failed(self) -> list[Table]:
        """Tables that join, and can't be read."""
        joining = [table for table in self._tables.values() if table.backfill.joins]
        return joining[:1] if joining and self._world.happens("table cannot be read") else []

    def _give_up(self, backfill: Backfill) -> GivenUp:
        del self._tables[backfill.id]
        return GivenUp(backfill, "it is gone")

    def settle(self, chunk: Chunk, *, again: bool) -> None:
        self._unmerged -= 1
        table = self._tables.get(chunk.backfill)
        if table is None:
            return
        if again:
            self._world.saw("chunk read again")
            table.again.append(chunk)
        elif chunk.end is None:
            del self._tables[chunk.backfill]

    def _step(self) -> None:
        world = self._world
        if self._reading and world.chance(0.5):
            self._read.append(self._reading.pop(world.rng.randrange(len(self._reading))))
            self._source.work_elsewhere()
            return
        tables = [table for table in self._tables.values() if table.again or not table.is_whole]
        if tables and self._unmerged < UNMERGED_MAX:
            self._work(world.rng.choice(tables))

    def _work(self, table: Table) -> None:
        sees, rows = self._source.visible()
        self._saw(sees)
        if not self._is_settled(table, sees):
            return
        relation = self._source.relations[table.backfill.oid]
        image = self._encoder_of(relation).read_image
        if table.again:
            old = table.again.pop()
            begin, end = old.begin, old.end
        else:
            begin = table.planned
            end = self._end(rows[relation.oid], begin)
            table.planned, table.is_whole = end, end is None
        kept = [
            image(row)
            for key, row in rows[relation.oid].items()
            if (begin is None or begin < (key,)) and (end is None or (key,) <= end)
        ]
        self._unmerged += 1
        self._reading.append(Chunk(table.backfill.id, relation, begin, end, kept, sees, self._source.wal_end))

    def _is_settled(self, table: Table, sees: Visibility) -> bool:
        """Of what the log brought before this reading began nothing is remembered: all of it must be visible."""
        table.is_settled = table.is_settled or sees.xmin > table.settles_at
        return table.is_settled

    def _end(self, rows: dict[str, tuple[str | None, ...]], begin: Key | None) -> Key | None:
        keys = sorted((key,) for key in rows if begin is None or begin < (key,))
        count = self._world.rng.randint(1, 3)
        return keys[count - 1] if len(keys) >= count else None

    def _saw(self, sees: Visibility) -> None:
        if self._newest is None or self._newest.is_before(sees):
            self._newest = sees
