"""The initial snapshot: a slot, the database as it was at the slot's consistent point, and a boundary to stream from.

In: settings and the tables. Out: every row as an `r` event, then the first progress record at which views may stand.
Keeps true: rows and log meet at the consistent point without gap or overlap; an interrupted snapshot is recognised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cdc.backfill import Backfill
from cdc.changes import Origin, Relation
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.progress import Kind, Progress, add_checksums
from cdc.publisher import Publisher
from cdc.replication import NewSlot, ReplicationConnection
from cdc.settings import Settings
from cdc.tables import Tables
from snapshot.reader import Batch, SnapshotReaders
from snapshot.sizes import TableSize, fits_chunks

_log = get(__name__)

_COMMIT_RECORDS: Final = 50_000
_COMMIT_S: Final = 10.0


@dataclass(slots=True)
class SnapshotProgress:
    """How far a snapshot is: rows read by table, and the estimate."""

    estimated: dict[str, int]
    read: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)


Report = Callable[[SnapshotProgress], None]


class InitialSnapshot:
    """One attempt; on any error throw it away together with its publisher."""

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        publisher: Publisher,
        ends: dict[str, tuple[int, ...]],
        previous: Progress | None,
        sizes: Mapping[int, TableSize],
    ) -> None:
        self._settings = settings
        self._sizes = sizes
        self._tables = tables
        self._publisher = publisher
        self._ends = ends
        self._previous_seq = previous.seq if previous else 0
        self._records = 0
        self._checksum = 0

    def run(self, report: Report) -> Progress:
        """Take the snapshot; streaming starts at the record at its end, which is a boundary unless large tables are
        left to be read in chunks."""
        source = self._settings.source
        connection = ReplicationConnection(source, source.stream, application="afterimage snapshot")
        try:
            system_id = connection.identify()
            slot = connection.create_slot(self._settings.slot)
            assert slot.snapshot is not None
            _log.info("snapshot started", lsn=format_lsn(slot.consistent_lsn), tables=len(self._tables.relations))
            return self._read(slot, system_id, report)
        finally:
            connection.close()

    def _read(self, slot: NewSlot, system_id: str, report: Report) -> Progress:
        now_us = time.time_ns() // 1000
        # Before everything that commits at or after the consistent point; log records never start at such an odd byte.
        origin = Origin(slot.consistent_lsn - 1, None, now_us)
        by_size = sorted(self._tables.relations.values(), key=lambda relation: -self._sizes[relation.oid].bytes)
        large = [relation for relation in by_size if self._is_large(relation)]
        relations = [relation for relation in by_size if not self._is_large(relation)]
        state = SnapshotProgress({relation.qualified: self._sizes[relation.oid].rows for relation in relations})
        assert slot.snapshot is not None
        readers = SnapshotReaders(self._settings.source, self._tables, relations, slot.snapshot, origin)
        try:
            readers.start(self._settings.capture.snapshot_readers)
            progress = self._begin(slot.consistent_lsn, now_us, system_id)
            committed_s = time.monotonic()
            for batch in readers:
                self._take(batch, state)
                report(state)
                if self._records >= _COMMIT_RECORDS or time.monotonic() - committed_s > _COMMIT_S:
                    progress = self._commit(progress, Kind.SNAPSHOT, state)
                    committed_s = time.monotonic()
            progress = self._commit(progress, Kind.SNAPSHOT, state)
        finally:
            readers.close()
        progress = self._commit(progress, Kind.SNAPSHOT if large else Kind.IDLE, state, self._backfills(large, now_us))
        _log.info("snapshot complete", lsn=format_lsn(progress.lsn), rows=sum(state.read.values()), left=len(large))
        return progress

    def _is_large(self, relation: Relation) -> bool:
        size = self._sizes[relation.oid]
        is_fit = fits_chunks(self._tables, relation, size)
        return is_fit and size.bytes > self._settings.snapshot.chunked_above_bytes

    def _backfills(self, large: list[Relation], now_us: int) -> tuple[Backfill, ...]:
        """What is left to be read in chunks; from here on a killed capture goes on where it was."""
        return tuple(
            Backfill(
                id=f"initial-{relation.oid}",
                oid=relation.oid,
                schema=relation.schema,
                table=relation.name,
                topic=self._tables.topic(relation),
                initial=True,
                estimated_rows=self._sizes[relation.oid].rows,
                started_us=now_us,
            )
            for relation in large
        )

    def _begin(self, lsn: int, now_us: int, system_id: str) -> Progress:
        """The record that says a snapshot is under way, with the schemas; it begins a new chain."""
        for relation in self._tables.relations.values():
            record = self._tables.schema_record(relation, lsn)
            self._publisher.announce(record.key(), record.value())
        progress = Progress(
            seq=self._previous_seq + 1,
            kind=Kind.SNAPSHOT,
            prev_lsn=0,
            lsn=lsn,
            source_ts_us=now_us,
            records=0,
            checksum=0,
            ends=self._ends,
            system_id=system_id,
            snapshot={},
            origin_lsn=lsn,
        )
        self._publisher.commit(progress)
        return progress

    def _take(self, batch: Batch, state: SnapshotProgress) -> None:
        records = batch.copied.records
        self._publisher.produce(records)
        self._records += len(records)
        self._checksum = add_checksums(self._checksum, batch.copied.checksum)
        table = batch.relation.qualified
        state.read[table] = state.read.get(table, 0) + len(records)
        if batch.last:
            state.done.add(table)

    def _commit(
        self, previous: Progress, kind: Kind, state: SnapshotProgress, backfills: tuple[Backfill, ...] = ()
    ) -> Progress:
        sealed = self._publisher.seal() if self._records else {}
        progress = replace(
            previous.successor(kind, self._records, self._checksum, sealed),
            snapshot=dict(state.read) if kind is Kind.SNAPSHOT else None,
            backfills=backfills,
        )
        self._publisher.commit(progress)
        self._records, self._checksum = 0, 0
        return progress
