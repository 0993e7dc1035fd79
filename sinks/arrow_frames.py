"""Rows that this process holds, as a frame for Spark, and back without Spark.

In: an Arrow table, a schema. Out: a frame of exactly its rows, which also knows them. Keeps true: Spark takes an empty
batch for the end of all rows, so a table that was put together of several is handed over as one; what a frame knows is
what it would answer, in the same types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_rows: Final[WeakKeyDictionary[Any, pa.Table]] = WeakKeyDictionary()


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """All of the rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    whole = rows.combine_chunks()
    frame = spark.createDataFrame(whole, schema)
    _rows[frame] = whole.cast(to_arrow_schema(schema, timezone="UTC"))
    return frame


def rows_in(frame: DataFrame) -> pa.Table | None:
    """The rows of a frame that was made of them; None for any other."""
    return _rows.get(frame)


def with_columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """These columns of a frame, which goes on to know its rows."""
    from sinks.delta.literals import quoted  # the Delta sink imports this module

    found = frame.select(*map(quoted, names))
    if (rows := _rows.get(frame)) is not None:
        _rows[found] = rows.select(list(names))
    return found
