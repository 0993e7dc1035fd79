"""Readers of the initial snapshot: tables in one exported snapshot, copied in parallel, row by row into records.

In: relations and the snapshot's name. Out: batches of records through a bounded queue, so that a slow broker slows the
readers. Keeps true: every reader sees exactly what had committed before the consistent point, or none goes on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.changes import Origin, Relation
from cdc.names import quote_literal
from cdc.postgres import connect
from cdc.settings import Source
from cdc.sqlstate import translated
from cdc.tables import Tables
from snapshot.copy_records import Copied, copy_records
from snapshot.table_source import copy_statement, table_source

_QUEUE_BATCHES: Final = 8
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of one table; `last` when the table is done."""

    relation: Relation
    copied: Copied
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
        statement = copy_statement(table_source(connection, relation), relation, self._tables.privacy)
        for copied in copy_records(connection, statement, encoder, self._origin):
            if not self._hand_over(Batch(relation, copied, last=False)):
                return
        self._hand_over(Batch(relation, Copied([], 0), last=True))

    def _hand_over(self, item: Batch | BaseException) -> bool:
        while not self._stop.is_set():
            try:
                self._batches.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False
