"""A range of a topic, thousands of records at a time.

In: a table, offsets [start, end). Out: Records, of each partition in the order of its offsets. Keeps true: what is not
there any more is never passed over in silence; what is held at once is bounded, however large the records are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from cdc.kafka_clients import consumer, translated
from cdc.settings import Kafka
from jobs.native_rows import Unusual
from jobs.small_range import SILENCE_S, ended, header_position
from jobs.tables import TableInfo

RECORDS_AT_ONCE: Final = 10_000
BYTES_AT_ONCE: Final = 4 << 20
_AT_FULL_SPEED: Final = {
    # By default a request brings 1 MB, and none is made while 100,000 records wait: the broker would be waited for.
    "fetch.message.max.bytes": 4 << 20,
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 32 << 10,
}
_PATIENCE_S: Final = 0.05
"""How long a call waits for as many as it asked for; what librdkafka has fetched by then is bounded by its queue."""


@dataclass(slots=True)
class Records:
    """Keys and values side by side; a tombstone has no value, but the position of its header."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of the tombstones, by where they are in the lists."""
    bytes: int = 0

    def take(self, messages: Sequence[Any]) -> None:
        """These messages after the others."""
        first = len(self.keys)
        keys, values = [message.key() for message in messages], [message.value() for message in messages]
        if None in keys:
            raise Unusual("record")
        self.keys += keys
        self.values += values
        self.partitions += [message.partition() for message in messages]
        self.offsets += [message.offset() for message in messages]
        if None in values:
            gone = [at for at, value in enumerate(values) if value is None]
            self.positions |= {first + at: header_position(messages[at]) for at in gone}
        self.bytes += sum(map(len, filter(None, values)))


def scan(
    table: TableInfo, kafka: Kafka, offsets: tuple[Sequence[int], Sequence[int]], on_read: Callable[[int], None]
) -> Generator[Records]:
    """All of it; `on_read` hears how many records more have been read, and may raise."""
    todo = {at: last for at, (first, last) in enumerate(zip(*offsets, strict=True)) if first < last}
    if not todo:
        return
    client = consumer(kafka, "apply", **_AT_FULL_SPEED)
    try:
        with translated(f"reading {table.topic}"):
            client.assign([TopicPartition(table.topic, at, offsets[0][at]) for at in todo])
        gathered = Records()
        for messages in _until(client, todo, table.topic):
            on_read(len(messages))
            gathered.take(messages)
            if gathered.bytes >= BYTES_AT_ONCE:
                yield gathered
                gathered = Records()
        if gathered.keys:
            yield gathered
    finally:
        client.close()


def _until(client: Consumer, todo: dict[int, int], topic: str) -> Iterator[list[Message]]:
    """The messages below the end offsets; `todo` shrinks as partitions are done."""
    ends = dict(todo)
    heard_s = time.monotonic()
    while todo:
        with translated(f"reading {topic}"):
            messages = client.consume(RECORDS_AT_ONCE, _PATIENCE_S)
        if not messages:
            if time.monotonic() - heard_s > SILENCE_S:
                raise Unusual("silence")
            continue
        heard_s = time.monotonic()
        if errors := [message for message in messages if message.error() is not None]:
            messages = [message for message in messages if message.error() is None]
        # Of each partition the last one in this call: offsets go up.
        last: dict[Any, Any] = {message.partition(): message.offset() for message in messages}
        for message in errors:
            ended(message, todo, topic)
        for partition, offset in last.items():
            if partition in todo and offset >= todo[partition] - 1:
                del todo[partition]
        is_beyond = any(offset >= ends[partition] for partition, offset in last.items())
        yield _below(messages, ends) if is_beyond else messages


def _below(messages: list[Any], ends: dict[int, int]) -> list[Message]:
    return [message for message in messages if message.offset() < ends[message.partition()]]
