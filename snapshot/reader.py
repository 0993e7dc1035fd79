"""Readers of the initial snapshot: tables in one exported snapshot, copied in parallel, row by row into records.

In: relations and the snapshot's name. Out: batches of records through a bounded queue, so that a slow broker slows the
readers. Keeps true: every reader sees exactly what had committed before the consistent point, or none goes on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.changes import Origin, Record, Relation
from cdc.envelope import TableEncoder
from cdc.names import quote_ident, quote_literal
from cdc.postgres import connect
from cdc.relations import selected
from cdc.settings import Source
from cdc.sqlstate import translated
from cdc.tables import Tables
from snapshot.copy_lines import copy_lines
from snapshot.copy_text import parse_line

_BATCH_ROWS: Final = 2_000
_BATCH_BYTES: Final = 2 << 20
_QUEUE_BATCHES: Final = 8
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of one table; `last` when the table is done."""

    relation: Relation
    records: list[Record]
    last: bool


class SnapshotReaders:
    """Threads that read tables until none is left; iterate to get their batches."""

    def __init__(
        self, source: Source, tables: Tables, relations: Sequence[Relation], snapshot: str, origin: Origin
    ) -> None:
        self._source = source
        self._tables = tables
        self._origin = origin
        self._snapshot = snapshot
        self._todo: queue.SimpleQueue[Relation] = queue.SimpleQueue()
        for relation in relations:
            self._todo.put(relation)
        self._left = len(relations)
        self._batches: queue.Queue[Batch | BaseException] = queue.Queue(_QUEUE_BATCHES)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, readers: int) -> None:
        """Open the readers; when this returns all of them hold the snapshot."""
        connections = [self._join_snapshot() for _ in range(min(readers, self._left))]
        for number, connection in enumerate(connections):
            thread = threading.Thread(target=self._read_all, args=(connection,), name=f"snapshot-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def __iter__(self) -> Iterator[Batch]:
        while self._left:
            item = self._batches.get()
            if isinstance(item, BaseException):
                raise item
            self._left -= item.last
            yield item

    def close(self) -> None:
        """Stop reading and let the snapshot go."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _join_snapshot(self) -> psycopg.Connection[Any]:
        connection = connect(self._source, self._source.read, application="afterimage snapshot")
        with translated():
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET TRANSACTION SNAPSHOT {quote_literal(self._snapshot)}".encode())
        return connection

    def _read_all(self, connection: psycopg.Connection[Any]) -> None:
        try:
            # Closed, not committed: asked to stop, it may be in the middle of a COPY.
            with closing(connection), translated():
                while not self._stop.is_set():
                    try:
                        relation = self._todo.get_nowait()
                    except queue.Empty:
                        return
                    self._read(connection, relation)
        except BaseException as error:  # noqa: BLE001  it is raised again where the batches are taken
            self._hand_over(error)

    def _read(self, connection: psycopg.Connection[Any], relation: Relation) -> None:
        encoder = self._tables.encoder(relation)
        statement = self._copy_query(connection, relation).encode()
        for lines in copy_lines(connection, statement, _BATCH_ROWS, _BATCH_BYTES):
            records = encoded(encoder, lines, self._origin, time.time_ns() // 1_000_000)
            if not self._hand_over(Batch(relation, records, last=False)):
                return
        self._hand_over(Batch(relation, [], last=True))

    def _copy_query(self, connection: psycopg.Connection[Any], relation: Relation) -> str:
        """Only the table itself, as the log has it; a partitioned root stands for its partitions."""
        row = connection.execute("SELECT relkind FROM pg_catalog.pg_class WHERE oid = %s", (relation.oid,)).fetchone()
        only = "" if row is not None and row[0] in ("p", b"p") else "ONLY "
        columns = ", ".join(selected(relation, self._tables.privacy))
        table = f"{quote_ident(relation.schema)}.{quote_ident(relation.name)}"
        return f"COPY (SELECT {columns} FROM {only}{table}) TO STDOUT"  # noqa: S608  every name is quoted

    def _hand_over(self, item: Batch | BaseException) -> bool:
        while not self._stop.is_set():
            try:
                self._batches.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False


def encoded(encoder: TableEncoder, lines: list[bytes], origin: Origin, ts_ms: int) -> list[Record]:
    """The records of COPY's lines."""
    records, at = encoder.plain_records(lines, 0, origin, ts_ms)
    while at < len(lines):
        records.append(encoder.read_record(parse_line(lines[at]), origin, ts_ms))
        more, at = encoder.plain_records(lines, at + 1, origin, ts_ms)
        records += more
    return records
