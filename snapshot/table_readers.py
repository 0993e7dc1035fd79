"""Readers of tables in chunks beside the stream: threads, each with a connection of the `read` role.

In: tables to read. Out: chunks, and the oldest snapshots that chunks may yet come from. Keeps true: only so many chunks
are read and not yet merged; a table's first snapshot sees every transaction that the log brought before its reading.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from cdc.backfill import Backfill, Chunk, Key
from cdc.changes import Record
from cdc.errors import OperatorError, RecordError
from cdc.log import get
from cdc.merging import Fed, GivenUp
from cdc.postgres import connect
from cdc.settings import Settings
from cdc.sqlstate import translated
from cdc.tables import Tables
from cdc.visibility import Visibility
from snapshot.asked import AskedTables
from snapshot.chunk import ChunkReader, Range, Told
from snapshot.run import Report, SnapshotProgress
from snapshot.throttle import Throttle

_log = get(__name__)

_FIRST_ROWS: Final = 100
_OPEN_POLL_S: Final = 0.05
_SAY_AFTER_S: Final = 5.0


@dataclass(slots=True)
class _Table:
    """How far a table is planned; the machine knows how far it is merged."""

    backfill: Backfill
    planned: Key | None
    rows: int
    is_settled: bool = False
    """Whether every transaction from before the reading has ended."""
    is_planning: bool = False
    is_planned_whole: bool = False
    again: deque[Chunk] = field(default_factory=deque)

    @property
    def has_work(self) -> bool:
        return not self.is_planning and (bool(self.again) or not self.is_planned_whole)

    def take(self) -> Range:
        """The next range; it stays the only one being planned until `ends` is told."""
        if self.again:
            chunk = self.again.popleft()
            return Range(chunk.begin, chunk.end, is_planned=True, rows=0)
        self.is_planning = True
        return Range(self.planned, None, is_planned=False, rows=self.rows)


class TableReaders:
    """Threads start with the first table; an error in one of them is raised by `take`."""

    def __init__(self, settings: Settings, tables: Tables, report: Report = lambda _: None) -> None:
        self._settings = settings
        self._report = report
        self._state = SnapshotProgress({})
        self._encoders = tables
        self._lock = threading.Condition()
        self._tables: dict[str, _Table] = {}
        self._chunks: deque[Chunk] = deque()
        self._unmerged = 0
        self._in_use: dict[int, Visibility | None] = {}
        self._newest: Visibility | None = None
        self._error: BaseException | None = None
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._given_up: dict[str, GivenUp] = {}
        self._untold: list[GivenUp] = []
        self._asked = AskedTables(settings, tables)
        self._throttle = Throttle(settings.snapshot.rows_per_s, time.monotonic)

    def read(self, backfill: Backfill) -> None:
        """Begin with a table, from `backfill.done` on; its changes are remembered by now."""
        _log.info("reading table in chunks", table=backfill.qualified, rows=backfill.rows)
        self._state.estimated[backfill.qualified] = backfill.estimated_rows
        self._state.read[backfill.qualified] = backfill.rows
        with self._lock:
            rows = min(_FIRST_ROWS, self._rows_max())
            self._tables[backfill.id] = _Table(backfill, backfill.done, rows)
            self._lock.notify_all()
        while len(self._threads) < self._settings.snapshot.workers:
            number = len(self._threads)
            thread = threading.Thread(target=self._run, args=(number,), name=f"table-reader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def take(self) -> Fed:
        """What has come since."""
        begun, refused = self._asked.news()
        with self._lock:
            if self._error is not None:
                raise self._error
            used = [sees for sees in self._in_use.values() if sees is not None]
            oldest = used or ([self._newest] if self._newest is not None else [])
            chunks, self._chunks = self._chunks, deque()
            given_up, self._untold = [*refused, *self._untold], []
        return Fed(begun, given_up, tuple(chunks), oldest)

    def answer(self, backfill: Backfill, failure: str | None) -> Record | None:
        """What to write for whoever asked for this table; None if nobody did."""
        return self._asked.answer(backfill, failure)

    def settle(self, chunk: Chunk, *, again: bool) -> None:
        """The chunk has been merged, or is to be read again."""
        with self._lock:
            self._unmerged -= 1
            table = self._tables.get(chunk.backfill)
            if table is not None and again:
                table.again.append(chunk)
            elif chunk.end is None:
                self._tables.pop(chunk.backfill, None)
            self._lock.notify_all()
        if table is not None and not again:
            self._tell(table.backfill.qualified, chunk)

    def _tell(self, name: str, chunk: Chunk) -> None:
        self._state.read[name] += len(chunk.rows)
        if chunk.end is None:
            self._state.done.add(name)
        self._report(self._state)

    def close(self) -> None:
        """End all readers; what they have read and nobody merged is read again by the next ones."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join()
        self._asked.close()

    def _fail(self, number: int, table: _Table, reason: str) -> None:
        """One table can't be read; the others go on."""
        backfill = table.backfill
        with self._lock:
            self._unmerged -= 1
            self._in_use[number] = None
            self._tables.pop(backfill.id, None)
            if backfill.id not in self._given_up:
                self._given_up[backfill.id] = GivenUp(backfill, reason)
                self._untold.append(self._given_up[backfill.id])
            self._lock.notify_all()

    def _run(self, number: int) -> None:
        try:
            source = self._settings.source
            with connect(source, source.read, application="afterimage snapshot") as connection:
                self._read_all(connection, number)
        except BaseException as error:  # noqa: BLE001  it is raised again where chunks are taken
            with self._lock:
                self._error = self._error or error

    def _read_all(self, connection: psycopg.Connection[Any], number: int) -> None:
        reader = ChunkReader(connection, self._encoders)
        while (work := self._next()) is not None:
            table, wanted = work
            if not table.is_settled and not self._settle_table(connection, table):
                return
            self._read_chunk(reader, number, table, wanted)
            # Writes a commit record, so that the log moves on past the chunk even where nothing else happens.
            with translated():
                connection.execute("SELECT pg_catalog.pg_current_xact_id()")

    def _next(self) -> tuple[_Table, Range] | None:
        """Wait for work that may be done now; None at the end."""
        with self._lock:
            while not self._is_closed:
                wait_s = self._throttle.wait_s()
                room = self._unmerged < 2 * self._settings.snapshot.workers
                table = next((table for table in self._tables.values() if table.has_work), None)
                if wait_s > 0 or not room or table is None:
                    self._lock.wait(wait_s or None)
                    continue
                self._unmerged += 1
                return table, table.take()
        return None

    def _settle_table(self, connection: psycopg.Connection[Any], table: _Table) -> bool:
        """Wait until every transaction that is open now has ended: of one that the log brought before the reading
        began, nothing is remembered, though it may not be visible yet. False when closed meanwhile."""
        with self._lock:
            begun = [other for other in self._tables.values() if not other.is_settled]
        with translated():
            row = connection.execute("SELECT pg_catalog.pg_current_xact_id()::text::int8").fetchone()
        assert row is not None
        began_s, said = time.monotonic(), False
        while True:
            with translated():
                now = connection.execute("SELECT pg_catalog.pg_current_snapshot()::text").fetchone()
            assert now is not None
            sees = Visibility.parse(now[0])
            with self._lock:
                self._saw(sees)
                if sees.xmin > row[0]:
                    for other in begun:
                        other.is_settled = True
                if table.is_settled:
                    return True
                if self._lock.wait_for(lambda: self._is_closed, _OPEN_POLL_S):
                    return False
            if not said and time.monotonic() - began_s > _SAY_AFTER_S:
                said = True
                _log.warning("waiting for transactions that were open before", table=table.backfill.qualified)

    def _read_chunk(self, reader: ChunkReader, number: int, table: _Table, wanted: Range) -> None:
        def sees(visibility: Visibility) -> None:
            with self._lock:
                self._in_use[number] = visibility
                self._saw(visibility)

        def ends(end: Key | None) -> None:
            if not wanted.is_planned:
                with self._lock:
                    table.planned, table.is_planned_whole, table.is_planning = end, end is None, False
                    self._lock.notify_all()

        with self._lock:
            self._in_use[number] = self._newest
        try:
            chunk = reader.read(table.backfill, wanted, Told(sees, ends))
        except (OperatorError, RecordError) as error:
            if table.backfill.initial:
                raise
            self._fail(number, table, error.message)
            return
        if chunk is None and table.backfill.joins:
            self._fail(number, table, "it is gone")
            return
        if chunk is None:
            chunk = self._of_nothing(table, wanted)
            ends(chunk.end)
        with self._lock:
            self._throttle.spend(len(chunk.rows))
            self._size(table, chunk)
            self._chunks.append(chunk)
            self._in_use[number] = None

    def _of_nothing(self, table: _Table, wanted: Range) -> Chunk:
        """The end of a table that is gone."""
        assert self._newest is not None
        _log.warning("table is gone, reading it ends", table=table.backfill.qualified)
        relation = self._encoders.relations[table.backfill.oid]
        return Chunk(table.backfill.id, relation, wanted.begin, wanted.end, (), self._newest, 0)

    def _saw(self, sees: Visibility) -> None:
        if self._newest is None or self._newest.is_before(sees):
            self._newest = sees

    def _size(self, table: _Table, chunk: Chunk) -> None:
        """The next chunk's rows, by the size of this one's."""
        if chunk.rows:
            each = sum(len(row.head) for row in chunk.rows) / len(chunk.rows)
            table.rows = max(1, min(self._rows_max(), int(self._settings.snapshot.chunk_bytes / each)))

    def _rows_max(self) -> int:
        """Never more than a second's worth at once."""
        limits = self._settings.snapshot
        return min(limits.chunk_rows, limits.rows_per_s or limits.chunk_rows)
