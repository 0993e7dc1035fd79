"""The pipeline's two transactional producers, which take turns.

In: where Kafka is. Out: the one whose turn it is. Keeps true: each has a transactional id of its own, always the same,
so whoever starts both has fenced every older capture.

After a commit is answered the broker is not done with it: it has yet to mark every partition, and tells a producer that
begins again meanwhile to come back 20 ms later. The other producer need not wait. Its records may then come before the
marker, which readers allow for: what was committed first is seen first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer

from cdc.kafka_clients import producer
from cdc.sending import ManySender
from cdc.settings import Kafka

QUEUE_RECORDS: Final = 200_000
QUEUE_KB_MAX: Final = 2_000_000
"""What librdkafka takes at all: a row may be nearly as large as Kafka's largest record."""

HELD_BYTES_MAX: Final = 64 << 20
"""What is handed to librdkafka before its delivery is waited for, but for one record."""
LARGE_BYTES: Final = 512 << 10
"""From here on a broker with the usual limits may refuse a record."""


@dataclass(frozen=True, slots=True)
class Line:
    """One producer, and its way for many records at a time."""

    producer: Producer
    many: ManySender


class Turns:
    """Both lines. `line` is the one that the open transaction is on, or the next one."""

    def __init__(self, kafka: Kafka, pipeline: str, timeout_s: float) -> None:
        self.lines = [_line(kafka, pipeline, transactional_id, timeout_s) for transactional_id in _ids(pipeline)]
        self.line = self.lines[0]

    def start(self, timeout_s: float) -> None:
        """Fence every older producer of the pipeline and abort what it left open."""
        for line in self.lines:
            line.producer.init_transactions(timeout_s)

    def end(self) -> None:
        """The other one's turn."""
        self.line = self.lines[1 - self.lines.index(self.line)]


def _ids(pipeline: str) -> tuple[str, str]:
    # No pipeline's name has a hyphen, so no other pipeline has these.
    return f"afterimage-{pipeline}", f"afterimage-{pipeline}-2"


def _line(kafka: Kafka, pipeline: str, transactional_id: str, timeout_s: float) -> Line:
    made = producer(
        kafka,
        f"capture-{pipeline}",
        **{
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(timeout_s * 1000),
            # What lets batches grow while there is more to send; `flush` does not wait for it.
            "linger.ms": 50,
            "compression.type": "lz4",
            "batch.size": 1 << 20,
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "queue.buffering.max.kbytes": QUEUE_KB_MAX,
        },
    )
    return Line(made, ManySender(made, QUEUE_RECORDS, HELD_BYTES_MAX, LARGE_BYTES))
