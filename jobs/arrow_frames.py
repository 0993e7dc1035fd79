"""Rows that this process holds, as a frame for Spark.

In: an Arrow table, a schema. Out: a frame of exactly its rows. Keeps true: Spark takes an empty batch for the end of
all rows, so a table that was put together of several is handed over as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """All of the rows."""
    return spark.createDataFrame(rows.combine_chunks(), schema)
