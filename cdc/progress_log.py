"""The progress topic as a reader sees it: its newest record, and what comes after it.

In: the topic, committed records only. Out: Progress. Used by capture at its start and by apply for every batch.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from cdc.errors import OperatorError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, TOPIC_MISSING, consumer, extent, translate, translated
from cdc.names import progress_topic
from cdc.progress import Progress
from cdc.settings import Kafka

_FIRST_LOOK: Final = 16
_ATTEMPT_S: Final = 30.0


class ProgressLog:
    """Follows the progress topic; `newest` never goes back."""

    def __init__(self, kafka: Kafka, pipeline: str) -> None:
        self._topic = progress_topic(pipeline)
        self._consumer: Consumer = consumer(kafka, f"progress-{pipeline}")
        self._newest: Progress | None = None
        self._boundary: Progress | None = None
        self._started = False
        self._next = 0

    def newest(self, wait_s: float = 0.0) -> Progress | None:
        """The newest record, after waiting up to `wait_s` for one newer than what the last call returned."""
        if not self._started:
            self._start()
        else:
            self._drain(wait_s)
        return self._newest

    def boundary(self, wait_s: float = 0.0) -> Progress | None:
        """The newest record at which a view may stand, None before the first snapshot is complete."""
        newest = self.newest(wait_s)
        if newest is not None and newest.is_boundary:
            self._boundary = newest
        return self._boundary

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _start(self) -> None:
        try:
            low, high = extent(self._consumer, self._topic, "reading the progress topic", _ATTEMPT_S)
        except OperatorError as error:
            if error.code == TOPIC_MISSING:
                return  # capture has not made it yet
            raise
        look = _FIRST_LOOK
        while True:
            begin = max(low, high - look)
            with translated("reading the progress topic"):
                self._consumer.assign([TopicPartition(self._topic, 0, begin)])
            self._next = begin
            self._read_to(high)
            if self._newest is not None or begin == low:
                break
            look *= 8
        self._started = True

    def _read_to(self, high: int) -> None:
        """To this offset or the end: the end may never come while capture writes, the offset may be of a marker."""
        deadline = time.monotonic() + _ATTEMPT_S
        while time.monotonic() < deadline:
            if self._take(1.0) == "end" or self._next >= high:
                return
        raise TransientError(
            "the progress topic did not answer",
            "is Kafka up and reachable at kafka.bootstrap?",
            code="KAFKA_UNAVAILABLE",
        )

    def _drain(self, wait_s: float) -> None:
        """Take what is there; wait only for the first record."""
        before = self._newest
        deadline = time.monotonic() + wait_s
        while True:
            left = max(0.0, deadline - time.monotonic()) if self._newest is before else 0.0
            if self._take(left) == "nothing" and (self._newest is not before or time.monotonic() >= deadline):
                return

    def _take(self, wait_s: float) -> str:
        message = self._consumer.poll(wait_s)
        if message is None:
            return "nothing"
        error = message.error()
        if error is not None:
            if error.code() == END_OF_PARTITION:
                return "end"
            raise translate(error, "reading the progress topic")
        self._next = (message.offset() or 0) + 1
        value = message.value()
        if value is not None:
            record = Progress.from_bytes(value)
            if record.is_boundary:
                self._boundary = record
            self._newest = record
        return "record"
