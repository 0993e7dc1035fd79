"""Records into Kafka, one transaction at a time, under the pipeline's transactional id.

In: records and a progress record. Out: a committed transaction, or an error after which it is thrown away.
Keeps true: only one producer of a pipeline can commit, older ones are fenced; `seal` counts only what is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from cdc import metrics
from cdc.changes import Record
from cdc.errors import CdcError, TransientError
from cdc.kafka_clients import producer, refused_record, translate, translated
from cdc.names import progress_topic, schema_topic
from cdc.progress import PROGRESS_KEY, Progress
from cdc.sending import POSITION_HEADER, Counts, ManySender
from cdc.settings import Kafka

_NOTHING_KEY: Final = b"{}"
_QUEUE_RECORDS: Final = 200_000
_QUEUE_KB_MAX: Final = 2_000_000
"""What librdkafka takes at all: a row may be nearly as large as Kafka's largest record."""

_HELD_BYTES_MAX: Final = 64 << 20
"""What is handed to librdkafka before its delivery is waited for, but for one record."""
_POLL_S: Final = 0.1
_LARGE_BYTES: Final = 512 << 10
"""From here on a broker with the usual limits may refuse a record."""

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
        self._first: dict[tuple[str, int], int] = {}
        self._counts: Counts = {}
        self._held_bytes = 0
        self._producer = producer(
            kafka,
            f"capture-{pipeline}",
            **{
                "transactional.id": f"afterimage-{pipeline}",
                "transaction.timeout.ms": int(timeout_s * 1000),
                # What lets batches grow while there is more to send; `flush` does not wait for it.
                "linger.ms": 50,
                "compression.type": "lz4",
                "batch.size": 1 << 20,
                "message.max.bytes": 1_000_000_000,
                "queue.buffering.max.messages": _QUEUE_RECORDS,
                "queue.buffering.max.kbytes": _QUEUE_KB_MAX,
            },
        )
        self._many = ManySender(self._producer, _QUEUE_RECORDS, _HELD_BYTES_MAX, _LARGE_BYTES)

    def start(self) -> None:
        """Fence every older producer of the pipeline and abort what it left open."""
        with translated("taking over the pipeline's transactional id"):
            self._producer.init_transactions(self._timeout_s)

    def produce(self, sent: Sequence[Record]) -> None:
        """Add data records to the open transaction."""
        records = sent if isinstance(sent, list) else list(sent)
        self._begin()
        at = 0
        while True:
            with translated("producing to Kafka"):
                at, self._held_bytes = self._many.send(records, at, self._counts, self._held_bytes)
            if at == len(records):
                break
            self._produce_one(records[at])
            at += 1
        self._producer.poll(0)

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
        self._flush()
        return {
            topic: {at: self._first[topic, at] + count for at, count in enumerate(counts) if count}
            for topic, counts in self._counts.items()
        }

    def commit(self, progress: Progress) -> None:
        """Write the progress record and commit. On an error the outcome is unknown: throw this publisher away."""
        self._begin()
        self._send(Record(self._progress_topic, 0, PROGRESS_KEY, progress.to_bytes()), None, None)
        with translated("committing to Kafka"):
            self._producer.commit_transaction(self._timeout_s)
        self._open = False
        self._first, self._counts = {}, {}
        metrics.committed(progress)

    def require_newest(self) -> None:
        """Raise if a newer producer has taken over: only a commit finds that out, so this commits next to nothing."""
        self._begin()
        self._send(Record(self._schema_topic, 0, _NOTHING_KEY, None), None, None)
        with translated("asking whether another capture has taken over"):
            self._producer.commit_transaction(self._timeout_s)
        self._open = False

    def close(self) -> None:
        """Drop what is open; a new publisher's start() aborts it on the broker."""
        self._producer.purge()
        self._producer.poll(0)

    def _begin(self) -> None:
        if not self._open:
            with translated("beginning a Kafka transaction"):
                self._producer.begin_transaction()
            self._open = True

    def _produce_one(self, record: Record) -> None:
        counts = self._counts.setdefault(record.topic, [])
        counts += [0] * (record.partition + 1 - len(counts))
        headers = [(POSITION_HEADER, record.position)] if record.position is not None else None
        length = len(record.value or b"")
        self._held_bytes += length
        if self._held_bytes > _HELD_BYTES_MAX:
            self._flush()
            self._held_bytes = length
        landed = self._landed if counts[record.partition] == 0 else None
        self._send(record, headers, landed if length < _LARGE_BYTES else partial(self._large_landed, record, landed))
        counts[record.partition] += 1

    def _send(self, record: Record, headers: Any, landed: Any) -> None:
        while True:
            try:
                self._producer.produce(
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
        self._first[topic, partition] = offset

    def _large_landed(self, record: Record, landed: Landed | None, error: KafkaError | None, message: Message) -> None:
        """Of a large record its own fate is asked for: others are refused with their transaction."""
        if error is not None and self._refused is None:
            self._refused = refused_record(error, record)
        if landed is not None:
            landed(error, message)

    def _require_no_error(self) -> None:
        if self._refused is not None:
            raise self._refused
        if self._error is not None:
            raise translate(self._error, "producing to Kafka")

    def _flush(self) -> None:
        while self._producer.flush(_POLL_S):
            self._wait()
        self._require_no_error()
        self._held_bytes = 0
        sent = {(topic, at) for topic, counts in self._counts.items() for at, count in enumerate(counts) if count}
        if not sent <= self._first.keys():
            raise TransientError("Kafka did not acknowledge every record", "capture starts again by itself")

    def _wait(self) -> None:
        self._require_no_error()
        self._alive()
        self._producer.poll(_POLL_S)
