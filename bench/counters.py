"""How many records a side has put on the broker, seen from outside.

Keeps true: only what a `read_committed` reader sees is counted: ours by the progress records, each of which says how
many records its Kafka transaction holds; the peer, which uses no transactions, by the ends of its topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from bench.result import Run
from bench.servers import Bench
from bench.usage import Spent, peak_of_all_mb
from cdc.errors import TransientError
from cdc.kafka_clients import END_OF_PARTITION, consumer
from cdc.names import progress_topic
from cdc.progress import Progress
from cdc.settings import Kafka

Count = Callable[[], int]
_WAIT_S = 300.0


class ProgressCounter:
    """Follows the progress topic from its beginning."""

    def __init__(self, kafka: Kafka, pipeline: str) -> None:
        self._consumer: Consumer = consumer(kafka, "bench", **{"fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(progress_topic(pipeline), 0, 0)])
        self._records = 0
        self.newest: Progress | None = None

    def __call__(self) -> int:
        """Committed records so far."""
        message = self._consumer.poll(0.05)
        while message is not None:
            error, value = message.error(), message.value()
            if error is None and value is not None:
                self.newest = Progress.from_bytes(value)
                self._records += self.newest.records
            elif error is not None and error.code() != END_OF_PARTITION:
                raise TransientError(f"the progress topic cannot be followed: {error.name()}")
            message = self._consumer.poll(0)
        return self._records

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


class TopicCounter:
    """Asks for the ends of a topic."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._consumer: Consumer = consumer(kafka, "bench")
        self._partitions = [TopicPartition(topic, number) for number in range(kafka.partitions)]

    def __call__(self) -> int:
        """Records so far."""
        time.sleep(0.02)
        return sum(self._consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in self._partitions)

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


def measured(side: str, bench: Bench, pid: int, count: Count, wanted: int) -> Run:
    """Watch until `wanted` records have come on top of those that are there; the first ones seen start the clock."""
    broker = bench.kafka.process.pid
    there, deadline = count(), time.monotonic() + _WAIT_S
    while (first := count()) == there:
        assert time.monotonic() < deadline, f"{side}: nothing came"
    began, before = time.monotonic(), Spent.so_far(pid, broker)
    while (now := count()) < there + wanted:
        assert time.monotonic() < deadline, f"{side}: {now - there} of {wanted} records came"
    took, cost = time.monotonic() - began, Spent.so_far(pid, broker).since(before)
    assert now == there + wanted, f"{side}: {now - there} records instead of {wanted}"
    rate = (now - first) / took if took else 0.0
    return Run(side, rate, cost.reader, cost.broker, peak_of_all_mb(pid))
