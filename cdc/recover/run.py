"""`recover`: a new slot, and the topics brought to its consistent point by difference.

In: settings, tables, the newest progress record, a publisher that has fenced all others. Out: a boundary record at the
new slot's consistent point. Keeps true: killed anywhere, the next capture stops with RECOVER_INTERRUPTED or SLOT_AHEAD
and the next recover does it all again; records have positions after every older one, so views simply go on.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc.changes import Origin, Record, Relation
from cdc.errors import OperatorError
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.progress import Kind, Progress, add_checksums, checksum
from cdc.publisher import Publisher
from cdc.recover.fold import fold_topics
from cdc.recover.held import Bucket, HeldKeys
from cdc.recover.image import image_of
from cdc.replication import NewSlot, ReplicationConnection
from cdc.resume import SlotState
from cdc.schema_record import SchemaRecord
from cdc.settings import Settings
from cdc.tables import Tables
from snapshot.reader import Batch, SnapshotReaders

_log = get(__name__)

_COMMIT_RECORDS: Final = 50_000
_COMMIT_S: Final = 10.0
_BATCH_KEYS: Final = 2_000


@dataclass(slots=True)
class Recovered:
    """How far a recovery is, and what it has found."""

    offsets_total: int
    rows_total: int
    offsets: int = 0
    rows: int = 0
    changed: int = 0
    gone: int = 0
    lsn: int = 0


Report = Callable[[Recovered], None]


class Recovery:
    """One attempt; on any error throw it away together with its publisher."""

    def __init__(
        self,
        settings: Settings,
        tables: Tables,
        announced: Mapping[tuple[str, str], SchemaRecord],
        publisher: Publisher,
        report: Report,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._announced = announced
        self._publisher = publisher
        self._report = report
        self._records = 0
        self._checksum = 0
        self._committed_s = time.monotonic()

    def run(self, previous: Progress, slot: SlotState | None, estimated_rows: int) -> Recovered:
        """Fold, take the slot, compare, commit."""
        ends = {topic: previous.ends[topic] for topic in self._tables.topics}
        state = Recovered(sum(sum(all_ends) for all_ends in ends.values()), estimated_rows)
        held = HeldKeys(self._settings.data / "recover")
        try:
            fold_topics(self._settings.kafka, ends, held, lambda offsets: self._tell(state, offsets))
            self._reconcile(previous, slot, held, state)
        finally:
            held.close()
        return state

    def _tell(self, state: Recovered, offsets: int) -> None:
        state.offsets = offsets
        self._report(state)

    def _reconcile(self, previous: Progress, old: SlotState | None, held: HeldKeys, state: Recovered) -> None:
        source = self._settings.source
        connection = ReplicationConnection(source, source.stream, application="afterimage recover")
        try:
            if old is not None:
                connection.drop_slot(old.name)
            slot = connection.create_slot(self._settings.slot)
            _log.info("new slot", slot=self._settings.slot, lsn=format_lsn(slot.consistent_lsn))
            if slot.consistent_lsn <= previous.lsn:
                connection.drop_slot(self._settings.slot)
                raise _too_early(slot, previous)
            self._compare(previous, slot, held, state)
        finally:
            connection.close()

    def _compare(self, previous: Progress, slot: NewSlot, held: HeldKeys, state: Recovered) -> None:
        now_us = time.time_ns() // 1000
        origin = Origin(slot.consistent_lsn - 1, None, now_us)
        assert slot.snapshot is not None
        relations = list(self._tables.relations.values())
        readers = SnapshotReaders(self._settings.source, self._tables, relations, slot.snapshot, origin)
        try:
            readers.start(self._settings.capture.snapshot_readers)
            progress = self._begin(previous, slot.consistent_lsn, now_us)
            for batch in readers:
                progress = self._rows(batch, held, state, progress)
                if batch.last:
                    progress = self._vanished(batch.relation, origin, held, state, progress)
                self._report(state)
            progress = self._commit(progress, Kind.RECOVER)
        finally:
            readers.close()
        progress = self._commit(progress, Kind.IDLE)
        state.lsn = progress.lsn

    def _begin(self, previous: Progress, lsn: int, now_us: int) -> Progress:
        """The record that says a recovery is under way, with the schemas that changed meanwhile."""
        for relation in self._tables.relations.values():
            record = self._tables.schema_record(relation, lsn)
            known = self._announced.get((relation.schema, relation.name))
            if known is None or known.relation != record.relation:
                self._publisher.announce(record.key(), record.value())
        progress = replace(
            previous.successor(Kind.RECOVER, 0, 0, {}),
            lsn=lsn,
            source_ts_us=now_us,
            snapshot=None,
            part=None,
            recovered_lsn=lsn,
            backfills=(),
            schemas=previous.schemas + 1,
        )
        self._publisher.commit(progress)
        return progress

    def _rows(self, batch: Batch, held: HeldKeys, state: Recovered, progress: Progress) -> Progress:
        """Send the rows that the topic does not hold just so."""
        changed = _different(batch.copied.records, held)
        state.rows += len(batch.copied.records)
        state.changed += len(changed)
        return self._send(changed, progress)

    def _vanished(
        self, relation: Relation, origin: Origin, held: HeldKeys, state: Recovered, progress: Progress
    ) -> Progress:
        """Send deletes for the keys that the source no longer has."""
        encoder = self._tables.encoder(relation)
        for keys in held.left(encoder.topic, _BATCH_KEYS):
            now_ms = time.time_ns() // 1_000_000
            records = [record for key in keys for record in encoder.vanished_records(key, origin, now_ms)]
            state.gone += len(keys)
            progress = self._send(records, progress)
            self._report(state)
        return progress

    def _send(self, records: Sequence[Record], progress: Progress) -> Progress:
        if records:
            self._publisher.produce(records)
            self._records += len(records)
            self._checksum = add_checksums(self._checksum, checksum(records))
        is_due = self._records and time.monotonic() - self._committed_s > _COMMIT_S
        return self._commit(progress, Kind.RECOVER) if is_due or self._records >= _COMMIT_RECORDS else progress

    def _commit(self, previous: Progress, kind: Kind) -> Progress:
        sealed = self._publisher.seal() if self._records else {}
        progress = previous.successor(kind, self._records, self._checksum, sealed)
        self._publisher.commit(progress)
        self._records, self._checksum, self._committed_s = 0, 0, time.monotonic()
        return progress


def _different(records: Sequence[Record], held: HeldKeys) -> list[Record]:
    by_bucket: dict[Bucket, list[Record]] = defaultdict(list)
    for record in records:
        by_bucket[record.topic, record.partition].append(record)
    different = []
    for bucket, some in by_bucket.items():
        digests = held.take(bucket, [record.key for record in some])
        different += [record for record in some if digests.get(record.key) != image_of(record.key, record.value)]
    return different


def _too_early(slot: NewSlot, previous: Progress) -> OperatorError:
    """Positions only ever grow: what is sent now must come after everything that was sent before."""
    return OperatorError(
        f"the source's log is at {format_lsn(slot.consistent_lsn)}, not yet past the topics at "
        f"{format_lsn(previous.lsn)}",
        "after a failover that lost the log's tail the new one must grow beyond the old: repeat `afterimage recover` "
        "later, or move the log on: SELECT pg_switch_wal()",
        code="RECOVER_TOO_EARLY",
    )
