"""Many rows are dealt out in more parts than shuffles usually have, and end in files of neighbouring keys."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import jobs.parts
from cdc.settings import Delta
from jobs.changes import greatest
from jobs.parts import dealt, parts, session_for, side_by_side
from sinks.delta import DeltaSink
from sinks.protocol import UPSERT
from tests.support.sinks import View, at

ROWS = 4_000
VIEW = View({"id": "bigint", "mark": "bigint"}, name="many")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.parts, "ROWS_MAX", 500)


def test_a_part_holds_no_more_rows_than_a_task_can_take(spark: SparkSession):
    assert parts(spark, 1_000) is None
    assert parts(spark, 1_001) == 3


def test_the_newest_of_each_key_are_the_same_in_however_many_parts(spark: SparkSession):
    rows = spark.range(ROWS).select(
        (F.col("id") % 700).cast("string").alias("key"), (F.col("id") % 2).alias("partition"), F.col("id").alias("lsn")
    )

    def newest(count: int) -> tuple[int, set[tuple[str, int]]]:
        found = greatest(rows, ("key", "partition"), F.struct("lsn"), (0, ROWS - 100), count)
        return found.rdd.getNumPartitions(), {(row["key"], row["lsn"]) for row in found.collect()}

    (few, usual), (many, dealt_out) = newest(1), newest(ROWS)
    assert (few, many) == (2, 8)
    assert dealt_out == usual
    assert len(usual) == 700


def test_files_of_a_large_load_lie_side_by_side(spark: SparkSession, tmp_path: Path, pipeline_name: str):
    sink = DeltaSink(Delta(path=str(tmp_path)), pipeline_name, VIEW.spec)
    rows = VIEW.frame(spark, [(UPSERT, 1, (key, -key)) for key in range(ROWS)])
    sink.replace(side_by_side(dealt(rows, ROWS, ("id",)), ("id",)), at(1))
    files = pa.table(DeltaTable(sink.path).get_add_actions(flatten=True)).sort_by("min.id").to_pylist()
    assert len(files) == 8
    assert all(one["max.id"] < other["min.id"] for one, other in itertools.pairwise(files))
    assert sum(file["num_records"] for file in files) == ROWS


def test_a_session_for_many_rows_is_another_one(spark: SparkSession):
    usual = spark.conf.get(jobs.parts.PARTS)
    assert session_for(spark, 1_000) is spark
    wide = session_for(spark, ROWS)
    assert wide.range(10_000).groupBy(F.col("id") % 100).count().rdd.getNumPartitions() == 8
    assert wide.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get(jobs.parts.PARTS) == usual
