"""In how many parts Spark deals out rows: a few for small batches, more where each of those would be too large.

In: how many rows there are. Out: frames, or a session, of so many parts. Keeps true: a part's rows fit into a task's
share of a driver with the default memory, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sinks.delta.literals import quoted

PARTS: Final = "spark.sql.shuffle.partitions"
ROWS_MAX: Final = 400_000
"""Of one part: two of them, as rows, as sorted runs and as what is kept of them, are at work at a time in 1 GB."""


def dealt(frame: DataFrame, rows: int, by: Sequence[str]) -> DataFrame:
    """The frame, of so many rows, with those of one group in one part; left alone where the usual parts do."""
    needed = parts(frame.sparkSession, rows)
    return frame if needed is None else frame.repartition(needed, *by)


def gathered(spark: SparkSession, frame: DataFrame, rows: int) -> DataFrame:
    """The frame in no more parts than so many rows need: each is a file, and costs its writer some time."""
    return frame.coalesce(parts(spark, rows) or _usual(spark))


def side_by_side(held: DataFrame, key: Sequence[str]) -> DataFrame:
    """A frame that is held in memory, where it has more parts than usual, with neighbouring keys in one part.

    Of files that are sorted by themselves, each part would have one for any key.
    """
    count = held.rdd.getNumPartitions()
    return held.repartitionByRange(count, *map(quoted, key)) if count > _usual(held.sparkSession) else held


def session_for(spark: SparkSession, rows: int) -> SparkSession:
    """The session itself, or one beside it, without its views, whose shuffles have the parts that so many rows need."""
    needed = parts(spark, rows)
    if needed is None:
        return spark
    wide = spark.newSession()
    wide.conf.set(PARTS, str(needed))
    return wide


def parts(spark: SparkSession, rows: int) -> int | None:
    """How many are needed; None where the usual number is enough."""
    needed = ceil(rows / ROWS_MAX)
    return needed if needed > _usual(spark) else None


def _usual(spark: SparkSession) -> int:
    return int(spark.conf.get(PARTS) or 1)
