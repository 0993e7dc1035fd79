"""Rows that this process holds, as a frame for Spark, and back without Spark.

In: an Arrow table, a schema. Out: a frame of exactly its rows, which also knows them. Keeps true: Spark takes an empty
batch for the end of all rows, so a table that was put together of several is handed over as one; what a frame knows is
what it would answer, in the same types. Importing this is not importing Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """All of the rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from sinks.held_frame import HeldFrame

    return HeldFrame(spark, rows.combine_chunks().cast(to_arrow_schema(schema, timezone="UTC")), schema)


def rows_in(frame: DataFrame) -> pa.Table | None:
    """The rows of a frame that was made of them; None for any other."""
    from sinks.held_frame import HeldFrame

    return frame.rows if isinstance(frame, HeldFrame) else None


def with_columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """These columns of a frame, which goes on to know its rows."""
    from pyspark.sql.types import StructType

    from sinks.delta.literals import quoted  # the Delta sink imports this module
    from sinks.held_frame import HeldFrame

    if (rows := rows_in(frame)) is None:
        return frame.select(*map(quoted, names))
    return HeldFrame(frame.sparkSession, rows.select(list(names)), StructType([frame.schema[name] for name in names]))
