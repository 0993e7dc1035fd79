"""A range of one topic as the last change of each key: what a batch applies.

In: a table, offsets [start, end) and positions [floor, ceiling). Out: `Changes`, kept in memory until released. Keeps
true: only whole transactions of the range count, in commit order per key, however often a record was read or written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.log import get
from cdc.settings import Kafka
from jobs.bulk.read import read_last_changes
from jobs.failures import translated
from jobs.kafka_options import source_options
from jobs.native_rows import Unusual, spark_schema
from jobs.parts import dealt
from jobs.rows import DIGEST, INTERNAL, ORDINAL, PARTITION, TRUNCATE, UNFIT_COLUMNS, before_truncate, positioned, typed
from jobs.small_range import RECORDS_MAX, RangeRows, read_small_range, records_max
from jobs.tables import TableInfo
from jobs.unfit import STRICT, Watch, digest, too_many
from sinks.arrow_frames import frame_of
from sinks.delta.small import KNOWN_ROWS_MAX, MARKED_ROWS_MAX
from sinks.protocol import AT, LSN, OP, UPSERT, Unfit

_log = get(__name__)

# Up to here one task reads the range: a shuffle would cost more than it spreads.
ONE_TASK_RECORDS_MAX: Final = 20_000
BULK_RECORDS_MIN: Final = 2_000
"""Below, it costs as much to read them one by one."""
BULK_RECORDS_MAX: Final = KNOWN_ROWS_MAX
BULK_BYTES_MAX: Final = 64 << 20
"""Spark may be told of them, and they are held as long as the batch lasts."""
MARKED_BYTES_MAX: Final = 128 << 20
"""For mirrors alone, which take their rows without Spark, as long as these and MARKED_ROWS_MAX are enough: who is
behind has many records of most keys."""

_Read = Callable[[TableInfo, Kafka, tuple[Sequence[int], Sequence[int]], tuple[int, int]], RangeRows]


@dataclass(frozen=True, slots=True)
class Changes:
    """`frame` has one row per changed key: the table's columns, OP, LSN, AT.

    After a truncate (its position is `truncated_at`) the frame's upserts are the table's whole content. `unfit` rows
    have null where their value fits no type, and are not in the frame at all where that is their key. Of the keys that
    were watched, `touched` have changed.
    """

    frame: DataFrame
    count: int
    truncated_at: tuple[int, int] | None
    held: DataFrame
    unfit: tuple[Unfit, ...] = ()
    touched: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether no row that can be shown changed."""
        return self.count == 0 and self.truncated_at is None

    def release(self) -> None:
        """Free the rows' memory; the frame must not be used any more."""
        self.held.unpersist()


def read_changes(  # noqa: PLR0913  what is read, and for whom
    spark: SparkSession,
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
    watch: Watch = STRICT,
    *,
    is_marked: bool = False,
) -> Changes:
    """The last change per key of `table` in [start, end) per partition, of transactions with floor <= LSN < ceiling.

    `is_marked`: only mirrors whose rows are marked will write them.
    """
    for read in _ways(records_max(*offsets), watch, is_marked=is_marked):
        try:
            return _from_driver(spark, table, read(table, kafka, offsets, lsns), watch)
        except Unusual as odd:
            _log.info("a range is left to another reader", topic=table.topic, reason=str(odd))
    return _from_spark(spark, table, kafka, offsets, lsns, watch)


def _ways(records: int, watch: Watch, *, is_marked: bool) -> Iterator[_Read]:
    """How to read so many without Spark, the cheapest first."""
    marked, others = (MARKED_ROWS_MAX, MARKED_BYTES_MAX), (BULK_RECORDS_MAX, BULK_BYTES_MAX)
    rows, size = marked if is_marked else others
    if records >= BULK_RECORDS_MIN and (is_marked or records <= BULK_RECORDS_MAX) and not watch.known:
        yield partial(read_last_changes, rows_max=rows, bytes_max=size)
    if records <= RECORDS_MAX:
        yield read_small_range


def _from_driver(spark: SparkSession, table: TableInfo, found: RangeRows, watch: Watch) -> Changes:
    with translated(f"reading {table.topic}"):
        frame = frame_of(spark, found.rows, spark_schema(table))
    touched = watch.known.intersection(map(digest, found.keys)) if watch.known else watch.known
    return Changes(frame, found.rows.num_rows, found.truncated_at, frame, touched=touched)


def _from_spark(
    spark: SparkSession,
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
    watch: Watch,
) -> Changes:
    with translated(f"reading {table.topic}"):
        count = records_max(*offsets)
        rows = _last_per_key(read_records(spark, table, kafka, *offsets), table, lsns, count)
        if count <= ONE_TASK_RECORDS_MAX:
            rows = rows.coalesce(1)
        held = typed(rows, table, watch).persist(StorageLevel.MEMORY_AND_DISK)
        found = F.count("*"), F.max(F.struct(LSN, ORDINAL)), F.count(DIGEST), F.count_if(nameless(table))
        counted = held.groupBy(OP, PARTITION).agg(*found).collect()
        truncates = {row[1]: (row[3][0], row[3][1]) for row in counted if row[0] == TRUNCATE}
        live = held.where(F.col(OP) != TRUNCATE)
        if truncates:
            live = live.where(~before_truncate(truncates))
        watched = watched_rows(live, table, watch) if any(row[4] for row in counted) else []
        # No row of such a key can be in any view, so there is nothing to delete either.
        frame = live.where(~nameless(table)) if any(row[5] for row in counted) else live
        changed = sum(row[2] for row in counted) if frame is live and not truncates else frame.count()
        return Changes(
            frame.drop(*INTERNAL),
            changed,
            max(truncates.values(), default=None),
            held,
            tuple(
                Unfit(row[DIGEST], row[AT], row[LSN], tuple(row[UNFIT_COLUMNS]))
                for row in watched
                if row[OP] == UPSERT and row[UNFIT_COLUMNS]
            ),
            watch.known.intersection(row[DIGEST] for row in watched),
        )


def watched_rows(live: DataFrame, table: TableInfo, watch: Watch) -> list[Row]:
    """The rows that have a digest: changes of keys that are known, and upserts that fit no type."""
    unfit_max = watch.unfit_max or 0
    most = unfit_max + len(watch.known)
    found = live.where(F.col(DIGEST).isNotNull()).select(OP, AT, LSN, UNFIT_COLUMNS, DIGEST).limit(most + 1).collect()
    if len(found) > most:
        raise too_many(f"a view of {table.qualified}", len(found), unfit_max)
    return found


def read_records(
    spark: SparkSession, table: TableInfo, kafka: Kafka, start: Sequence[int], end: Sequence[int]
) -> DataFrame:
    ranges = {at: pair for at, pair in enumerate(zip(start, end, strict=True)) if pair[0] < pair[1]}
    if not ranges:
        columns = "key string, value string, position string, partition int, offset bigint, produced bigint"
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
            F.unix_millis("timestamp").alias("produced"),
        )
    )


def _last_per_key(records: DataFrame, table: TableInfo, lsns: tuple[int, int], count: int) -> DataFrame:
    change = F.struct("lsn", "ordinal", "offset", "at", "op", "after")
    return greatest(positioned(records, table), ("key", "partition"), change, lsns, count)


def greatest(rows: DataFrame, by: Sequence[str], change: Column, lsns: tuple[int, int], count: int) -> DataFrame:
    """Of `count` rows the greatest `change`, a struct, of each group with floor <= LSN < ceiling: `by`, its fields."""
    # A struct's maximum is several times faster than a window. The range is looked at inside it, not before it: Spark
    # would push a filter below the parsing, and parse every record three times.
    newest = F.max(F.when(_inside(*lsns), change)).alias("newest")
    found = dealt(rows, count, by).groupBy(*by).agg(newest)
    return found.where(F.col("newest").isNotNull()).select(*by, "newest.*")


def nameless(table: TableInfo) -> Column:
    """Whether a typed row's key has a value that fits no type: it can be in no view."""
    return F.arrays_overlap(UNFIT_COLUMNS, F.array(*map(F.lit, table.key)))


def _inside(floor: int, ceiling: int) -> Column:
    return (F.col("lsn") >= floor) & (F.col("lsn") < ceiling)
