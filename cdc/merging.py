"""Chunks of tables merged with the log: which chunk may be put into the topic now, and which of its rows.

In: chunks as readers bring them, transactions as the log has them. Out: a chunk whose remaining rows are exactly what
those keys hold at the position that the log has reached. Keeps true: chunks of a table are merged in key order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cdc.backfill import Backfill, Chunk, RowImage
from cdc.changes import Record
from cdc.visibility import Visibility
from cdc.window import Window


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A table that cannot be read, and why."""

    backfill: Backfill
    reason: str


@dataclass(frozen=True, slots=True)
class Fed:
    """What the readers bring: tables to begin with, chunks, and the oldest snapshots that chunks may yet come from.

    `given_up` are tables that cannot be read; chunks of theirs may still come.
    """

    begun: Sequence[Backfill] = ()
    given_up: Sequence[GivenUp] = ()
    chunks: Sequence[Chunk] = ()
    oldest: Sequence[Visibility] = ()


NOTHING = Fed()


@dataclass(frozen=True, slots=True)
class Due:
    """A chunk to merge with the rows that still hold, None when it must be read again."""

    chunk: Chunk
    rows: Sequence[RowImage] | None


class Merging:
    """The tables being read."""

    def __init__(self, begun: Iterable[Backfill], remembered_keys_max: int) -> None:
        self._backfills = {backfill.id: backfill for backfill in begun}
        self._chunks: list[Chunk] = []
        self._window = Window(remembered_keys_max)
        self._window.watch(self._topics())
        self._shapes: dict[int, int | Visibility] = {}
        self.is_unsaved = False
        """Whether the state has moved since it was last written down."""

    @property
    def backfills(self) -> tuple[Backfill, ...]:
        """How far each table is."""
        return tuple(self._backfills.values())

    @property
    def is_initial(self) -> bool:
        """Whether a table is read on which views wait."""
        return any(backfill.initial for backfill in self._backfills.values())

    def begin(self, backfill: Backfill) -> bool:
        """Whether this one is new."""
        if backfill.id in self._backfills:
            return False
        self._backfills[backfill.id] = backfill
        self._window.watch(self._topics())
        self.is_unsaved = True
        return True

    def take(self, fed: Fed) -> list[Chunk]:
        """Chunks and snapshots; chunks to come are no older than `oldest`. The chunks that nobody wants any more."""
        chunks = [*self._chunks, *fed.chunks]
        self._chunks = [chunk for chunk in chunks if chunk.backfill in self._backfills]
        if fed.oldest:
            self._window.forget_seen([*fed.oldest, *(chunk.sees for chunk in self._chunks)])
        return [chunk for chunk in chunks if chunk.backfill not in self._backfills]

    def give_up(self, backfill: Backfill) -> None:
        """Forget a table; what was merged of it stays."""
        self._backfills.pop(backfill.id, None)
        self._window.watch(self._topics())
        self.is_unsaved = True

    def drop(self, topic: str) -> None:
        """Forget a topic's tables and their chunks: nothing of them may get there any more."""
        self._keep(backfill for backfill in self._backfills.values() if backfill.topic != topic)

    def drop_table_of(self, chunk: Chunk) -> None:
        """Forget the table that a chunk is of, and its other chunks."""
        self._keep(backfill for backfill in self._backfills.values() if backfill.id != chunk.backfill)

    def _keep(self, backfills: Iterable[Backfill]) -> None:
        self._backfills = {backfill.id: backfill for backfill in backfills}
        self._chunks = [chunk for chunk in self._chunks if chunk.backfill in self._backfills]
        self._window.watch(self._topics())
        self.is_unsaved = True

    def remember(self, xid: int | None, records: Sequence[Record]) -> None:
        """A transaction's records go into the topics."""
        if self._backfills:
            self._window.remember(xid, records)

    def shape_came(self, oid: int, source: int | Visibility | None) -> None:
        """A table's new shape was announced, for rows of this transaction or of a chunk with this snapshot."""
        if self._backfills and source is not None:
            self._shapes[oid] = source

    def is_older_shape(self, chunk: Chunk) -> bool:
        """Whether a chunk whose shape is not the topic's was read before the table got that one."""
        source = self._shapes.get(chunk.relation.oid)
        if isinstance(source, Visibility):
            return chunk.sees.is_before(source)
        return source is not None and not chunk.sees.sees(source)

    def due(self, reached: int, boundary: int) -> Due | None:
        """A chunk that the log has passed; its place is right before `reached`, where no view may stand already."""
        for chunk in self._chunks:
            backfill = self._backfills[chunk.backfill]
            passed = chunk.after_lsn <= reached and (backfill.initial or boundary < reached)
            if passed and chunk.begin == backfill.done:
                return Due(chunk, self._window.current(chunk, backfill.topic))
        return None

    def settle(self, chunk: Chunk, rows: int | None) -> Backfill | None:
        """A due chunk is in the topic with so many rows, or is to be read again; the table if that was its end."""
        self._chunks.remove(chunk)
        if rows is None:
            return None
        before = self._backfills[chunk.backfill]
        after = before.after(chunk, rows)
        self.is_unsaved = True
        if after is not None:
            self._backfills[before.id] = after
            return None
        del self._backfills[before.id]
        self._window.watch(self._topics())
        return replace(before, rows=before.rows + rows)

    def _topics(self) -> set[str]:
        return {backfill.topic for backfill in self._backfills.values()}
