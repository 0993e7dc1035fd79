"""Rows of this process reach Spark whole, however they were put together."""

from __future__ import annotations

import datetime as dt
import gc
import weakref

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sinks.arrow_frames import frame_of, rows_in, with_columns
from sinks.held_frame import HeldFrame

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


def test_a_frame_knows_the_rows_that_spark_would_answer(spark: SparkSession):
    moment = dt.datetime(2026, 11, 19, 12, 0, 0, 1, tzinfo=dt.UTC)
    rows = pa.table({"id": [1, 2], "text": pa.array(["a", None], pa.large_string()), "at": [moment, None]})
    kinds = {"id": LongType(), "text": StringType(), "at": TimestampType()}
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    frame = frame_of(spark, rows, schema)
    assert rows_in(frame) == frame.toArrow()
    some = with_columns(frame, ("at", "id"))
    assert rows_in(some) == some.toArrow()
    assert rows_in(some.where("id = 1")) is None, "what Spark has computed, Spark has to say"
    assert with_columns(frame.where("id = 1"), ("id",)).toArrow().num_rows == 1


def test_spark_hears_of_a_frame_when_it_is_asked(spark: SparkSession):
    frame = frame_of(spark, pa.table({"id": [1, 2], "n": [3, 4]}), StructType([*SCHEMA, StructField("n", LongType())]))
    some = with_columns(frame, ("n",))
    for each in (frame, some):
        assert isinstance(each, HeldFrame)
        assert each.unpersist() is each
        assert (each.columns, each.sparkSession, each.is_told) == (each.rows.column_names, spark, False)
    assert [row.n for row in some.where("n > 3").collect()] == [4]
    assert frame.join(some, "n").count() == 2
    held = frame.persist()
    assert frame.is_cached
    held.unpersist()
    assert not frame.is_cached


def test_rows_are_forgotten_with_their_frame(spark: SparkSession):
    frame = frame_of(spark, pa.table({"id": [1]}), StructType([StructField("id", LongType())]))
    known = weakref.ref(rows_in(frame))
    del frame
    gc.collect()
    assert known() is None
