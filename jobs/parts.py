"""In how many parts Spark deals out rows: a few for small batches, more where each of those would be too large.

In: how many rows there are. Out: a number of parts. Keeps true: a part's rows fit into a task's share of a driver with
the default memory, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from pyspark.sql import DataFrame, SparkSession

ROWS_MAX: Final = 400_000
"""Of one part: two of them, as rows, as sorted runs and as what is kept of them, are at work at a time in 1 GB."""


def dealt(frame: DataFrame, rows: int, by: Sequence[str]) -> DataFrame:
    """The frame, of so many rows, with those of one group in one part; left alone where the usual parts do."""
    needed = parts(frame.sparkSession, rows)
    return frame if needed is None else frame.repartition(needed, *by)


def parts(spark: SparkSession, rows: int) -> int | None:
    """How many are needed; None where the usual number is enough."""
    needed, usual = ceil(rows / ROWS_MAX), int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return needed if needed > usual else None
