"""A range of one topic as the last change of each key: what a batch applies.

In: a table, offsets [start, end) and positions [floor, ceiling). Out: `Changes`, kept in memory until released. Keeps
true: only whole transactions of the range count, in commit order per key, however often a record was read or written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.log import get
from cdc.settings import Kafka
from jobs.failures import translated
from jobs.kafka_options import source_options
from jobs.native_rows import Unusual, spark_schema
from jobs.rows import INTERNAL, ORDINAL, PARTITION, TRUNCATE, before_truncate, positioned, typed
from jobs.small_range import RECORDS_MAX, SmallRange, read_small_range
from jobs.tables import TableInfo
from sinks.protocol import LSN, OP

_log = get(__name__)

# Up to here one task reads the range: a shuffle would cost more than it spreads.
ONE_TASK_RECORDS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Changes:
    """`frame` has one row per changed key: the table's columns, OP, LSN, AT.

    After a truncate (its position is `truncated_at`) the frame's upserts are the table's whole content.
    """

    frame: DataFrame
    count: int
    truncated_at: tuple[int, int] | None
    held: DataFrame

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return self.count == 0 and self.truncated_at is None

    def release(self) -> None:
        """Free the rows' memory; the frame must not be used any more."""
        self.held.unpersist()


def read_changes(
    spark: SparkSession,
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
) -> Changes:
    """The last change per key of `table` in [start, end) per partition, of transactions with floor <= LSN < ceiling."""
    if _records_max(*offsets) <= RECORDS_MAX:
        try:
            return _from_driver(spark, table, read_small_range(table, kafka, offsets, lsns))
        except Unusual as odd:
            _log.info("a small range is left to spark", topic=table.topic, reason=str(odd))
    return _from_spark(spark, table, kafka, offsets, lsns)


def _from_driver(spark: SparkSession, table: TableInfo, small: SmallRange) -> Changes:
    with translated(f"reading {table.topic}"):
        frame = spark.createDataFrame(small.rows, spark_schema(table))
    return Changes(frame, small.rows.num_rows, small.truncated_at, frame)


def _from_spark(
    spark: SparkSession,
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
) -> Changes:
    with translated(f"reading {table.topic}"):
        rows = _last_per_key(_records(spark, table, kafka, *offsets), table, lsns)
        if _records_max(*offsets) <= ONE_TASK_RECORDS_MAX:
            rows = rows.coalesce(1)
        held = typed(rows, table).persist(StorageLevel.MEMORY_AND_DISK)
        counted = held.groupBy(OP, PARTITION).agg(F.count("*"), F.max(F.struct(LSN, ORDINAL))).collect()
        truncates = {row[1]: (row[3][0], row[3][1]) for row in counted if row[0] == TRUNCATE}
        frame = held.where(F.col(OP) != TRUNCATE)
        if truncates:
            frame = frame.where(~before_truncate(truncates))
        count = frame.count() if truncates else sum(row[2] for row in counted)
        return Changes(frame.drop(*INTERNAL), count, max(truncates.values(), default=None), held)


def _records_max(start: Sequence[int], end: Sequence[int]) -> int:
    return sum(max(0, last - first) for first, last in zip(start, end, strict=True))


def _records(
    spark: SparkSession, table: TableInfo, kafka: Kafka, start: Sequence[int], end: Sequence[int]
) -> DataFrame:
    ranges = {at: pair for at, pair in enumerate(zip(start, end, strict=True)) if pair[0] < pair[1]}
    if not ranges:
        columns = "key string, value string, position string, partition int, offset bigint"
        return spark.createDataFrame([], columns)
    options = {
        **source_options(kafka),
        "assign": json.dumps({table.topic: list(ranges)}),
        "startingOffsets": json.dumps({table.topic: {str(at): first for at, (first, _) in ranges.items()}}),
        "endingOffsets": json.dumps({table.topic: {str(at): last for at, (_, last) in ranges.items()}}),
    }
    header = F.filter("headers", lambda header: header["key"] == "position")
    return (
        spark.read.format("kafka")
        .options(**options)
        .load()
        .select(
            F.col("key").cast("string").alias("key"),
            F.col("value").cast("string").alias("value"),
            F.get(header, F.lit(0))["value"].cast("string").alias("position"),
            "partition",
            "offset",
        )
    )


def _last_per_key(records: DataFrame, table: TableInfo, lsns: tuple[int, int]) -> DataFrame:
    # A struct's maximum is several times faster than a window; the position comes first, so it decides.
    newest = F.max(F.struct("lsn", "ordinal", "offset", "at", "op", "after")).alias("newest")
    inside = positioned(records, table).where(_inside(*lsns))
    return inside.groupBy("key", "partition").agg(newest).select("key", "partition", "newest.*")


def _inside(floor: int, ceiling: int) -> Column:
    return (F.col("lsn") >= floor) & (F.col("lsn") < ceiling)
