"""Some keys of a topic's range, taken all over it: what its records are dealt out by.

In: a table, offsets [start, end). Out: bounds of the first key column that part the range into shares of about one
size, or none where one share is enough. Keeps true: a share can be held in memory, by the sizes of the records that
were seen; bounds are a matter of speed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from math import ceil
from typing import Any, Final

import polars as pl
import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from cdc.kafka_clients import consumer, translated
from cdc.settings import Kafka
from jobs.bulk.parse import KEY_BEGINNING, json_rows, json_type
from jobs.native_rows import Unusual
from jobs.small_range import TRUNCATE_KEY, records_max
from jobs.tables import TableInfo

SHARE_RECORDS: Final = 500_000
SHARE_BYTES: Final = 256 << 20
"""Of records as JSON, of which the rows are less than half."""
ONE_SHARE_RECORDS: Final = 1_200_000
SHARES_MAX: Final = 256
"""Each is an open file."""
_PLACES: Final = 64
_AT_A_PLACE: Final = 40
_PATIENCE_S: Final = 0.5
_LITTLE: Final = {"fetch.message.max.bytes": 64 << 10, "queued.max.messages.kbytes": 256, "fetch.wait.max.ms": 10}


def bounds(table: TableInfo, kafka: Kafka, offsets: tuple[Sequence[int], Sequence[int]]) -> pl.Series | None:
    """The least keys of all shares but the first, in order."""
    records = records_max(*offsets)
    if records <= ONE_SHARE_RECORDS:
        return None
    found = list(_seen(table, kafka, offsets))
    if not found:
        raise Unusual("sample")
    size = sum(len(message.value() or b"") for message in found) / len(found)
    shares = max(ceil(records / SHARE_RECORDS), ceil(records * size / SHARE_BYTES))
    if shares > SHARES_MAX:
        raise Unusual("size")
    keys = leading([message.key() or b"" for message in found], table).drop_nulls().sort()
    least = [keys[len(keys) * share // shares] for share in range(1, shares)] if len(keys) else []
    return pl.Series(least, dtype=keys.dtype).unique(maintain_order=True)


def leading(keys: Sequence[Any], table: TableInfo) -> pl.Series:
    """The first key column of records' keys; null in a truncate's."""
    column = next(column for column in table.columns if column.key)
    lines = [b'{"":0}' if key == TRUNCATE_KEY else key for key in keys]
    rows = json_rows(lines, pa.schema([(column.name, json_type(column))]), KEY_BEGINNING)
    found: Any = pl.from_arrow(rows.column(0))
    return pl.Series(found)


def _seen(table: TableInfo, kafka: Kafka, offsets: tuple[Sequence[int], Sequence[int]]) -> Iterator[Message]:
    """Some records, from places that lie as far from each other as the whole allows."""
    ranges = {at: pair for at, pair in enumerate(zip(*offsets, strict=True)) if pair[0] < pair[1]}
    places = max(1, _PLACES // max(1, len(ranges)))
    client = consumer(kafka, "apply", **_LITTLE)
    with closing(client), translated(f"reading {table.topic}"):
        for partition, (first, last) in ranges.items():
            for place in range(places):
                start = first + (last - first) * place // places
                yield from _at(client, TopicPartition(table.topic, partition, start))


def _at(client: Consumer, place: TopicPartition) -> Iterator[Message]:
    client.assign([place])
    for message in client.consume(_AT_A_PLACE, _PATIENCE_S):
        if message.error() is None:
            yield message
