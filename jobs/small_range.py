"""A small range of a topic, read in the driver: a Spark job would cost more than all its records.

In: as jobs.changes. Out: the last change per key as an Arrow table, or Unusual, and then Spark reads the range. Keeps
true: it answers only where its answer is Spark's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from cdc.kafka_clients import END_OF_PARTITION, consumer, translate, translated
from cdc.settings import Kafka
from jobs.native_rows import Last, Unusual, arrow_rows
from jobs.tables import TableInfo
from sinks.history.columns import EVENT, MOMENT, ORDINAL, PRODUCED
from sinks.protocol import DELETE

RECORDS_MAX: Final = 25_000
BYTES_MAX: Final = 16 << 20
SILENCE_S: Final = 10.0
OFFSET_OUT_OF_RANGE: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - librdkafka's own codes are called so
TRUNCATE_KEY: Final = b"{}"


@dataclass(frozen=True, slots=True)
class RangeRows:
    """The last changes of a range, the position of its last truncate, and the keys that changed."""

    rows: pa.Table
    truncated_at: tuple[int, int] | None
    keys: frozenset[bytes]


def records_max(start: Sequence[int], end: Sequence[int]) -> int:
    """How many records a range has, if none of them has been compacted away."""
    return sum(max(0, last - first) for first, last in zip(start, end, strict=True))


def read_small_range(
    table: TableInfo, kafka: Kafka, offsets: tuple[Sequence[int], Sequence[int]], lsns: tuple[int, int]
) -> RangeRows:
    """The last change per key, typed."""
    newest: dict[tuple[int, bytes], Last] = {}
    truncates: dict[int, tuple[int, int]] = {}
    for key, change in map(_change, _records(table, kafka, *offsets)):
        if not is_inside(change.lsn, *lsns):
            continue
        if key == TRUNCATE_KEY:
            truncates[change.partition] = max(truncates.get(change.partition, (0, 0)), (change.lsn, change.ordinal))
            continue
        slot = (change.partition, key)
        if slot not in newest or _order(newest[slot]) < _order(change):
            newest[slot] = change
    kept = [last for last in newest.values() if (last.lsn, last.ordinal) >= truncates.get(last.partition, (0, 0))]
    keys = frozenset(key for _, key in newest)
    return RangeRows(arrow_rows(kept, table), max(truncates.values(), default=None), keys)


def read_small_log(
    table: TableInfo, kafka: Kafka, offsets: tuple[Sequence[int], Sequence[int]], lsns: tuple[int, int]
) -> pa.Table:
    """Every change, typed, with EVENT, ORDINAL, MOMENT, PRODUCED; a truncate is left to Spark."""
    found: dict[tuple[bytes, int, int], Last] = {}
    for key, change in map(_change, _records(table, kafka, *offsets)):
        if not is_inside(change.lsn, *lsns):
            continue
        if key == TRUNCATE_KEY:
            raise Unusual("truncate")
        slot = (key, change.lsn, change.ordinal)
        # A delete's tombstone says less than its event.
        if change.op or slot not in found:
            found[slot] = change
    changes = list(found.values())
    moments = [change.ms * 1000 for change in changes]
    return (
        arrow_rows(changes, table)
        .append_column(EVENT, pa.array([change.op or DELETE for change in changes], pa.string()))
        .append_column(ORDINAL, pa.array([change.ordinal for change in changes], pa.int64()))
        .append_column(MOMENT, pa.array(moments, pa.timestamp("us", tz="UTC")))
        .append_column(PRODUCED, pa.array([change.produced for change in changes], pa.int64()))
    )


def is_inside(lsn: int, floor: int, ceiling: int) -> bool:
    """Whether a change belongs to [floor, ceiling)."""
    return floor <= lsn < ceiling


def _order(change: Last) -> tuple[int, int, int]:
    return change.lsn, change.ordinal, change.offset


def _change(message: Message) -> tuple[bytes, Last]:
    key, value = message.key(), message.value()
    partition, offset, produced = message.partition(), message.offset(), message.timestamp()[1]
    assert partition is not None
    assert offset is not None
    try:
        if key is None:
            raise TypeError("a record without a key")
        keys = json.loads(key)
        if value is None:
            lsn, ordinal = header_position(message)
            return key, Last(lsn, ordinal, offset, partition, keys, None, "", produced, produced)
        envelope = json.loads(value)
        source, op = envelope["source"], envelope["op"]
        after = envelope["after"] if op in ("c", "r", "u") else None
        if op not in ("c", "r", "u", "d", "t") or (after is None) != (op in ("d", "t")):
            raise ValueError("another kind of event")
        at = int(source["commit_lsn"]), int(source["ordinal"]), offset, partition
        return key, Last(*at, keys, after, op, int(source.get("ts_ms", produced)), produced)
    except (ValueError, TypeError, KeyError, AttributeError) as odd:
        raise Unusual("record") from odd


def header_position(message: Message) -> tuple[int, int]:
    """Where a tombstone's delete stands."""
    headers: dict[str, Any] = dict(message.headers() or ())
    try:
        lsn, _, ordinal = headers["position"].decode().partition(":")
        return int(lsn), int(ordinal)
    except (ValueError, KeyError, AttributeError) as odd:
        raise Unusual("record") from odd


def _records(table: TableInfo, kafka: Kafka, start: Sequence[int], end: Sequence[int]) -> Iterator[Message]:
    todo = {at: last for at, (first, last) in enumerate(zip(start, end, strict=True)) if first < last}
    if not todo:
        return
    client = consumer(kafka, "apply", **{"fetch.wait.max.ms": 10})
    try:
        with translated(f"reading {table.topic}"):
            client.assign([TopicPartition(table.topic, at, start[at]) for at in todo])
        size = 0
        for message in _until(client, todo, table.topic):
            size += len(message.value() or b"")
            if size > BYTES_MAX:
                raise Unusual("size")
            yield message
    finally:
        client.close()


def _until(client: Consumer, todo: dict[int, int], topic: str) -> Iterator[Message]:
    """The messages below the end offsets; `todo` shrinks as partitions are done."""
    while todo:
        message = client.poll(SILENCE_S)
        if message is None:
            raise Unusual("silence")
        if message.error() is not None:
            ended(message, todo, topic)
            continue
        partition, offset = message.partition(), message.offset()
        assert offset is not None
        if partition not in todo:
            continue
        last = todo[partition] - 1
        if offset >= last:
            del todo[partition]
        # Compaction may have taken the range's last record, and then this one is past it.
        if offset <= last:
            yield message


def ended(message: Message, todo: dict[int, int], topic: str) -> None:
    """What librdkafka says of a partition instead of a record: that it is read to its end, or what is wrong."""
    partition, offset, error = message.partition(), message.offset(), message.error()
    assert error is not None
    if error.code() == OFFSET_OUT_OF_RANGE:
        raise Unusual("range")
    if error.code() != END_OF_PARTITION:
        raise translate(error, f"reading {topic}")
    if partition not in todo:
        return
    assert offset is not None
    # The log may end right here, with its last records compacted away, but not before.
    if offset < todo[partition]:
        raise Unusual("end")
    del todo[partition]
