"""A range of one topic as every change that it holds, in contrast to the last one of each key (jobs.changes).

In: as jobs.changes. Out: `Changes` whose frame has one row per change: the table's columns, OP, LSN, AT, and EVENT,
ORDINAL, MOMENT, PRODUCED; a truncate is a row without a key. Keeps true: a change is there once, however often it was
written, and as a delete where its values fit no type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.log import get
from cdc.settings import Kafka
from jobs.changes import (
    ONE_TASK_RECORDS_MAX,
    Changes,
    greatest,
    nameless,
    read_records,
    watched_rows,
)
from jobs.failures import translated
from jobs.native_rows import Unusual, spark_schema
from jobs.rows import DIGEST, PARTITION, TRUNCATE, UNFIT_COLUMNS, positioned, typed
from jobs.small_range import RECORDS_MAX, read_small_log, records_max
from jobs.tables import TableInfo
from jobs.unfit import STRICT, Watch, deleted
from sinks.arrow_frames import frame_of
from sinks.history.columns import EVENT, MOMENT, ORDINAL, PRODUCED
from sinks.protocol import AT, LSN, OP, UPSERT, Unfit

_log = get(__name__)

_EXTRA: Final = {EVENT: "string", ORDINAL: "long", MOMENT: "timestamp", PRODUCED: "long"}


def read_every_change(
    spark: SparkSession,
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
    watch: Watch = STRICT,
) -> Changes:
    """Every change of `table` in [start, end) per partition, of transactions with floor <= LSN < ceiling."""
    if records_max(*offsets) <= RECORDS_MAX and not watch.known:
        try:
            rows = read_small_log(table, kafka, offsets, lsns)
        except Unusual as odd:
            _log.info("a small range is left to spark", topic=table.topic, reason=str(odd))
        else:
            schema = spark_schema(table)
            for name, kind in _EXTRA.items():
                schema = schema.add(name, kind)
            with translated(f"reading {table.topic}"):
                frame = frame_of(spark, rows, schema)
            return Changes(frame, rows.num_rows, None, frame)
    return _from_spark(spark, table, kafka, offsets, lsns, watch)


def _from_spark(
    spark: SparkSession,
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
    watch: Watch,
) -> Changes:
    with translated(f"reading {table.topic}"):
        records = records_max(*offsets)
        rows = _once(positioned(read_records(spark, table, kafka, *offsets), table, timed=True), lsns, records)
        if records <= ONE_TASK_RECORDS_MAX:
            rows = rows.coalesce(1)
        held = _typed(rows, table, watch).persist(StorageLevel.MEMORY_AND_DISK)
        live = held.where(~nameless(table) | (F.col(OP) == TRUNCATE))
        count, watched = live.agg(F.count("*"), F.count(DIGEST)).collect()[0]
        changes = Changes(live.drop(PARTITION, UNFIT_COLUMNS, DIGEST), count, None, held)
        return _marked(changes, live, rows, table, watch) if watched else changes


def _once(rows: DataFrame, lsns: tuple[int, int], count: int) -> DataFrame:
    """A delete's event and its tombstone are one change, and so is a record that was written twice."""
    change = F.struct(~F.col("tombstone"), "offset", "at", "op", "after", "ms", "produced")
    return greatest(rows, ("key", "partition", "lsn", "ordinal"), change, lsns, count)


def _typed(rows: DataFrame, table: TableInfo, watch: Watch) -> DataFrame:
    moment = F.timestamp_millis("ms").alias(MOMENT)
    return typed(rows, table, watch, F.col("op").alias(EVENT), moment, F.col("produced").alias(PRODUCED))


def _marked(changes: Changes, live: DataFrame, rows: DataFrame, table: TableInfo, watch: Watch) -> Changes:
    """The changes without the rows that fit no type; what is lacked is a key whose newest row is one of these."""
    found = watched_rows(live, table, watch)
    wrong = [row for row in found if row[OP] == UPSERT and row[UNFIT_COLUMNS]]
    digests = {row[DIGEST] for row in found}
    # Of a key that is watched only now, later changes have not been looked at.
    again = _typed(rows.where(F.sha2("key", 256).isin(*digests)), table, replace(watch, known=frozenset(digests)))
    newest: dict[str, Row] = {}
    for row in again.select(DIGEST, LSN, ORDINAL, AT, OP, UNFIT_COLUMNS).collect():
        before = newest.get(row[DIGEST])
        if before is None or (before[LSN], before[ORDINAL]) < (row[LSN], row[ORDINAL]):
            newest[row[DIGEST]] = row
    lacked = tuple(
        Unfit(digest, row[AT], row[LSN], tuple(row[UNFIT_COLUMNS]))
        for digest, row in newest.items()
        if row[OP] == UPSERT and row[UNFIT_COLUMNS]
    )
    gone = [Unfit(row[DIGEST], row[AT], row[LSN], tuple(row[UNFIT_COLUMNS])) for row in wrong]
    return replace(changes, frame=deleted(changes.frame, gone), unfit=lacked, touched=watch.known & digests)
