"""Records into Kafka, one transaction at a time, under the pipeline's transactional ids.

In: records and a progress record. Out: a committed transaction, or an error after which it is thrown away.
Keeps true: only one producer of a pipeline can commit, older ones are fenced; `seal` counts only what is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from cdc import metrics
from cdc.changes import Record
from cdc.errors import CdcError, TransientError
from cdc.kafka_clients import refused_record, translate, translated
from cdc.names import progress_topic, schema_topic
from cdc.producers import HELD_BYTES_MAX, LARGE_BYTES, Turns
from cdc.progress import PROGRESS_KEY, Progress
from cdc.sending import POSITION_HEADER, Counts, ends_of_each
from cdc.settings import Kafka

_NOTHING_KEY: Final = b"{}"
_POLL_S: Final = 0.1
Landed = Callable[[KafkaError | None, Message], None]


class Publisher:
    """The pipeline's transactional producer. `alive` is called while waiting, so that keepalives go on."""

    def __init__(self, kafka: Kafka, pipeline: str, timeout_s: float, alive: Callable[[], None] = lambda: None) -> None:
        self._progress_topic = progress_topic(pipeline)
        self._schema_topic = schema_topic(pipeline)
        self._timeout_s = timeout_s
        self._alive = alive
        self._open = False
        self._error: KafkaError | None = None
        self._refused: CdcError | None = None
        self._landed_at: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[str, int], Record] = {}
        self._counts: Counts = {}
        self._held_bytes = 0
        self._turns = Turns(kafka, pipeline, timeout_s)

    def start(self) -> None:
        """Fence every older producer of the pipeline and abort what it left open."""
        with translated("taking over the pipeline's transactional ids"):
            self._turns.start(self._timeout_s)

    def produce(self, sent: Sequence[Record]) -> None:
        """Add data records to the open transaction."""
        self._begin()
        self._produce(self._without_last(sent if isinstance(sent, list) else list(sent)))
        self._poll(0)

    def announce(self, key: bytes, value: bytes | None) -> None:
        """Add a schema record, or the tombstone of one; it is not data, so it is not counted."""
        self._begin()
        self._send(Record(self._schema_topic, 0, key, value), None, None)

    def note(self, record: Record) -> None:
        """Add a record of one of the pipeline's own topics; it is not data, so it is not counted."""
        self._begin()
        self._send(record, None, None)

    def seal(self) -> dict[str, dict[int, int]]:
        """Wait for the broker's acknowledgement of everything; the offset after the last record of each partition."""
        for record in self._last.values():
            self._produce_one(record, is_last=True)
        self._last = {}
        self._flush()
        ends: dict[str, dict[int, int]] = {}
        for topic, counts in self._counts.items():
            for partition, count in enumerate(counts):
                if count:
                    if (topic, partition) not in self._landed_at:
                        raise TransientError("Kafka did not acknowledge every record", "capture starts again by itself")
                    ends.setdefault(topic, {})[partition] = self._landed_at[topic, partition] + 1
        return ends

    def commit(self, progress: Progress) -> None:
        """Write the progress record and commit. On an error the outcome is unknown: throw this publisher away."""
        assert not self._last, "sealed before it is committed"
        self._begin()
        self._send(Record(self._progress_topic, 0, PROGRESS_KEY, progress.to_bytes()), None, None)
        with translated("committing to Kafka"):
            self._turns.line.producer.commit_transaction(self._timeout_s)
        self._ended()
        self._landed_at, self._counts = {}, {}
        metrics.committed(progress)

    def require_newest(self) -> None:
        """Raise if a newer producer has taken over: only a commit finds that out, so this commits next to nothing."""
        self._begin()
        self._send(Record(self._schema_topic, 0, _NOTHING_KEY, None), None, None)
        with translated("asking whether another capture has taken over"):
            self._turns.line.producer.commit_transaction(self._timeout_s)
        self._ended()

    def close(self) -> None:
        """Drop what is open; a new publisher's start() aborts it on the broker."""
        for line in self._turns.lines:
            line.producer.purge()
            with suppress(KafkaException):  # it says once more why it is given up
                line.producer.poll(0)

    def _begin(self) -> None:
        if not self._open:
            with translated("beginning a Kafka transaction"):
                self._turns.line.producer.begin_transaction()
            self._open = True

    def _ended(self) -> None:
        self._open = False
        self._turns.end()

    def _without_last(self, records: list[Record]) -> list[Record]:
        """What goes now. A partition's last record waits for `seal`, for where it lands is the end; the one that waited
        till now goes first. A partition's first goes at once, so that it joins the transaction meanwhile."""
        ends = ends_of_each(records)
        waited = [self._last.pop(slot) for slot in ends if slot in self._last]
        waits: set[int] = set()
        for slot, (first, last) in ends.items():
            if not _is_large(records[last]) and (first < last or self._is_begun(*slot)):
                self._last[slot] = records[last]
                waits.add(last)
        return waited + [record for at, record in enumerate(records) if at not in waits]

    def _is_begun(self, topic: str, partition: int) -> bool:
        counts = self._counts.get(topic, [])
        return partition < len(counts) and counts[partition] > 0

    def _produce(self, records: list[Record]) -> None:
        at = 0
        while True:
            with translated("producing to Kafka"):
                at, self._held_bytes = self._turns.line.many.send(records, at, self._counts, self._held_bytes)
            if at == len(records):
                break
            self._produce_one(records[at])
            at += 1

    def _produce_one(self, record: Record, *, is_last: bool = False) -> None:
        counts = self._counts.setdefault(record.topic, [])
        counts += [0] * (record.partition + 1 - len(counts))
        headers = [(POSITION_HEADER, record.position)] if record.position is not None else None
        length = len(record.value or b"")
        self._held_bytes += length
        if self._held_bytes > HELD_BYTES_MAX:
            self._flush()
            self._held_bytes = length
        landed: Landed | None = self._landed if is_last or counts[record.partition] == 0 else None
        self._send(record, headers, partial(self._large_landed, record) if _is_large(record) else landed)
        counts[record.partition] += 1

    def _send(self, record: Record, headers: Any, landed: Any) -> None:
        while True:
            try:
                self._turns.line.producer.produce(
                    record.topic, record.value, record.key, record.partition, on_delivery=landed, headers=headers
                )
            except BufferError:
                self._wait()
            except Exception as error:
                cause = error.args[0] if error.args else error
                raise refused_record(cause, record) from error
            else:
                return

    def _landed(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = error
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self._landed_at[topic, partition] = offset

    def _large_landed(self, record: Record, error: KafkaError | None, message: Message) -> None:
        """Of a large record its own fate is asked for: others are refused with their transaction."""
        if error is not None and self._refused is None:
            self._refused = refused_record(error, record)
        self._landed(error, message)

    def _require_no_error(self) -> None:
        if self._refused is not None:
            raise self._refused
        if self._error is not None:
            raise translate(self._error, "producing to Kafka")

    def _flush(self) -> None:
        with translated("waiting for Kafka's acknowledgements"):
            while self._turns.line.producer.flush(_POLL_S):
                self._wait()
        self._require_no_error()
        self._held_bytes = 0

    def _wait(self) -> None:
        self._require_no_error()
        self._alive()
        self._poll(_POLL_S)

    def _poll(self, timeout_s: float) -> None:
        with translated("producing to Kafka"):
            self._turns.line.producer.poll(timeout_s)


def _is_large(record: Record) -> bool:
    return record.value is not None and len(record.value) >= LARGE_BYTES
