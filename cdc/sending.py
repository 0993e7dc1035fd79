"""Records handed to librdkafka many at a time: confluent-kafka takes them one by one, each for a call from Python.

In: a producer of confluent-kafka's and records. Out: how many of them it has taken. Keeps true: a record that needs
more than being sent (to hear where it landed, or what became of it) is left to whoever asks, and so are all of them
with a version whose producer is not known to begin with its rd_kafka_t.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer

from cdc import compiled
from cdc.changes import Record
from cdc.linked import addresses

POSITION_HEADER: Final = "position"
_KNOWN: Final = ("2.16.",)
_HEADER_BYTES: Final = object.__basicsize__
_FUNCTIONS: Final = (
    "rd_kafka_produce_batch",
    "rd_kafka_produceva",
    "rd_kafka_topic_new",
    "rd_kafka_topic_destroy",
    "rd_kafka_outq_len",
    "rd_kafka_error_code",
    "rd_kafka_error_destroy",
)

Counts = dict[str, list[int]]
"""By topic and partition: how many records of the open transaction were sent."""


def ends_of_each(batch: list[Record]) -> dict[tuple[str, int], tuple[int, int]]:
    """By topic and partition: where its first and its last record are."""
    found: dict[tuple[str, int], tuple[int, int]]
    if compiled.records is not None:
        found = compiled.records.ends_of_each(batch)
        return found
    found = {}
    for at, record in enumerate(batch):
        slot = (record.topic, record.partition)
        found[slot] = (found[slot][0] if slot in found else at, at)
    return found


class ManySender:
    """A producer's shorter way, where there is one."""

    def __init__(self, producer: Producer, queue_max: int, held_bytes_max: int, large_bytes: int) -> None:
        self._sender = _sender(producer)
        self._limits = (queue_max, held_bytes_max, large_bytes)

    def send(self, batch: list[Record], at: int, counts: Counts, held_bytes: int) -> tuple[int, int]:
        """Produce `batch[at:]` up to the first record of a partition, a large one or one that does not fit any more;
        where that is, and the bytes that are held then. After a KafkaException some of them may have been sent."""
        if self._sender is None:
            return at, held_bytes
        stopped: tuple[int, int] = self._sender.send(batch, at, counts, held_bytes, *self._limits)
        return stopped


def _sender(producer: Producer) -> Any:
    if compiled.records is None or sys.implementation.name != "cpython":
        return None
    if not str(confluent_kafka.version()).startswith(_KNOWN):
        return None
    functions = addresses("confluent_kafka.cimpl", *_FUNCTIONS)
    client = ctypes.c_void_p.from_address(id(producer) + _HEADER_BYTES).value
    if functions is None or client is None:
        return None
    where = dict(zip(_FUNCTIONS, functions, strict=True))
    return compiled.records.Sender(producer, client, where, POSITION_HEADER.encode(), _refused)


def _refused(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))
