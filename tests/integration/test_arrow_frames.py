"""Rows of this process reach Spark whole, however they were put together."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from jobs.arrow_frames import frame_of

SCHEMA = StructType([StructField("id", LongType())])
EMPTY = pa.array([], pa.int64())


@pytest.mark.parametrize(
    ("chunks", "rows"),
    [
        pytest.param([EMPTY, EMPTY, pa.array([1])], [1], id="empty ones first"),
        pytest.param([pa.array([1]), EMPTY, EMPTY, pa.array([2, 3])], [1, 2, 3], id="empty ones between"),
        pytest.param([pa.array([1, 2]), EMPTY], [1, 2], id="an empty one last"),
        pytest.param([EMPTY, EMPTY], [], id="nothing else"),
        pytest.param([], [], id="none"),
    ],
)
def test_all_rows_of_all_chunks(spark: SparkSession, chunks: list[pa.Array[pa.Int64Scalar]], rows: list[int]):
    table = pa.Table.from_arrays([pa.chunked_array(chunks, pa.int64())], ["id"])
    assert sorted(row[0] for row in frame_of(spark, table, SCHEMA).collect()) == rows


def test_more_rows_than_one_batch_takes(spark: SparkSession):
    table = pa.table({"id": pa.array(range(25_000))})
    assert frame_of(spark, table, SCHEMA).count() == 25_000
