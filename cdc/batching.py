"""The open Kafka transaction: what is in it so far, and when it should end.

In: records and limits. Out: what to produce, and whether the transaction is full or large. Keeps true: every record
that was added is counted and summed up once. No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc.changes import Record
from cdc.progress import add_checksums, checksum


@dataclass(frozen=True, slots=True)
class Limits:
    """When a Kafka transaction ends, and how often an idle position is written down."""

    flush_interval_s: float = 0.005
    batch_records_max: int = 50_000
    batch_bytes_max: int = 32 << 20
    part_records_max: int = 500_000
    part_bytes_max: int = 64 << 20
    part_completed_max: int = 5_000
    """Rows whose unchanged values are read from the source, one query each: a part must end before Kafka aborts it."""
    chunk_records: int = 2_000
    idle_interval_s: float = 0.5
    remembered_keys_max: int = 200_000
    behind_s: float = 1.0
    behind_interval_s: float = 0.5

    def interval_s(self, behind_us: int) -> float:
        """Far behind, nobody waits for the last milliseconds, and larger batches catch up sooner."""
        far = self.is_far(behind_us)
        return max(self.flush_interval_s, self.behind_interval_s) if far else self.flush_interval_s

    def is_far(self, behind_us: int) -> bool:
        """Whether capture is catching up."""
        return behind_us > self.behind_s * 1e6


@dataclass(slots=True)
class Batch:
    """Records counted, and those not yet produced."""

    reached: int
    """The position that the log has been taken up to."""
    source_ts_us: int = 0
    records: int = 0
    size: int = 0
    completed: int = 0
    """Rows of which values were read from the source."""
    checksum: int = 0
    opened_s: float = 0.0
    buffer: list[Record] = field(default_factory=list)

    def after(self) -> Batch:
        """The next one, empty."""
        return Batch(self.reached, self.source_ts_us)

    def add(self, records: list[Record], now_s: float) -> None:
        """Records that are not produced yet."""
        self._open(now_s)
        self.records += len(records)
        for record in records:
            self.size += len(record.key) + len(record.value or b"")
        self.buffer.extend(records)

    def add_produced(self, records: int, size: int, total: int, now_s: float) -> None:
        """Records that go straight to the producer, with the sum of their checksums."""
        self._open(now_s)
        self.records += records
        self.size += size
        self.checksum = add_checksums(self.checksum, total)

    def take(self) -> list[Record]:
        """What is to be produced now."""
        records, self.buffer = self.buffer, []
        self.checksum = add_checksums(self.checksum, checksum(records))
        return records

    def is_full(self, limits: Limits) -> bool:
        """Whether it should end with the transaction at hand."""
        return self.records >= limits.batch_records_max or self.size >= limits.batch_bytes_max

    def is_large(self, limits: Limits) -> bool:
        """Whether it should end before the transaction at hand is whole."""
        return (
            self.records >= limits.part_records_max
            or self.size >= limits.part_bytes_max
            or (self.completed >= limits.part_completed_max and self.records > 0)
        )

    def _open(self, now_s: float) -> None:
        if not self.records:
            self.opened_s = now_s
