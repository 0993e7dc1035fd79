"""Batches of tens of thousands of rows that this process has: written without Spark, and the same as by Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cdc.settings import Delta
from sinks.arrow_frames import frame_of
from sinks.delta import DeltaSink, direct, marked, small
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT, Position, Written
from sinks.spec import Kind, ViewSpec

SPEC = ViewSpec("orders", Kind.MIRROR, "public", "t", ("id",), ("id",), ("id", "name"), "", "", (), "first")
SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField(OP, StringType()),
        StructField(LSN, LongType()),
        StructField(AT, StringType()),
    ]
)
ROWS = 60_000


def changes(spark: SparkSession, lsn: int, upserts: range, deletes: range = range(0)) -> DataFrame:
    ids = [*upserts, *deletes]
    names = [*(f"{key} at {lsn}" for key in upserts), *(None for _ in deletes)]
    ops = [UPSERT] * len(upserts) + [DELETE] * len(deletes)
    columns = {"id": ids, "name": names, OP: ops, LSN: [lsn] * len(ids), AT: ["t@0:1"] * len(ids)}
    return frame_of(spark, pa.table(columns), SCHEMA)


@pytest.mark.parametrize(
    ("way", "engine"),
    [("marked", "Afterimage"), ("large", "Afterimage"), ("direct", "delta-rs"), ("spark", "Apache-Spark")],
)
def test_a_middle_batch_is_written_by(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, engine: str):
    monkeypatch.setattr(marked, "TABLE_BYTES_MIN", 0)
    monkeypatch.setattr(direct, "TABLE_BYTES_MAX", 1 << 30 if way == "direct" else -1)
    if way in ("large", "spark"):
        monkeypatch.setattr(small, "KNOWN_ROWS_MAX", ROWS - 1)
    if way == "spark":
        monkeypatch.setattr(small, "MARKED_ROWS_MAX", ROWS - 1)
    sink = DeltaSink(Delta(path=str(tmp_path), deletion_vectors=way != "direct"), "shop", SPEC)
    assert sink.position() is None
    sink.replace(changes(spark, 1, range(ROWS)), Position(1, 0, {}))
    written = sink.write(changes(spark, 2, range(0, ROWS * 2, 3), range(1, ROWS, 3)), Position(2, 0, {}))
    assert written == Written(ROWS * 2 // 3, ROWS // 3)
    assert str(DeltaTable(sink.path).history(1)[0]["engineInfo"]).startswith(engine)
    expected = {key: f"{key} at 1" for key in range(2, ROWS, 3)} | {key: f"{key} at 2" for key in range(0, ROWS * 2, 3)}
    rows = list(sink.rows())
    assert len(rows) == len(expected)
    assert dict(rows) == expected


def test_a_large_batch_goes_beside_a_small_table_in_files_of_neighbouring_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(small, "KNOWN_ROWS_MAX", 999)
    monkeypatch.setattr(marked, "ROWS_PER_FILE_MAX", 300)
    sink = DeltaSink(Delta(path=str(tmp_path), deletion_vectors=True), "shop", SPEC)
    sink.position()
    sink.replace(changes(spark, 1, range(10)), Position(1, 0, {}))
    sink.write(changes(spark, 2, range(999, -1, -1)), Position(2, 0, {}))
    table = DeltaTable(sink.path)
    assert str(table.history(1)[0]["engineInfo"]) == "Afterimage"
    files = pa.table(table.get_add_actions(flatten=True)).sort_by("min.id")
    ends = list(zip(*(files.column(name).to_pylist() for name in ("min.id", "max.id")), strict=True))
    assert ends == [(0, 299), (300, 599), (600, 899), (900, 999)]
    assert dict(sink.rows()) == {key: f"{key} at 2" for key in range(1000)}
