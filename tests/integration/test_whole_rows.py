"""A table whose few rows are all replaced by rows that this process holds: readers see these at their position."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

import sinks.delta.marked
from cdc.errors import TransientError
from cdc.settings import Delta
from sinks.arrow_frames import frame_of
from sinks.delta import DeltaSink
from sinks.delta.own_commit import CHECKPOINT_EVERY, ENGINE
from sinks.protocol import DELETE, UPSERT
from tests.support.sinks import View, arrow_type, at

VIEW = View(
    {
        "id": "bigint",
        "note": "string",
        "price": "decimal(10,2)",
        "day": "date",
        "moment": "timestamp",
        "hour": "timestamp_ntz",
        "share": "double",
        "paid": "boolean",
        "raw": "binary",
    },
    name="whole",
)
DAY = dt.date(1582, 10, 4)
HOUR = dt.datetime(2026, 3, 29, 2, 30, 0, 1)  # noqa: DTZ001 - a timestamp without time zone
ROWS = [
    (1, "a\u2028‘", Decimal("-0.10"), DAY, HOUR.replace(tzinfo=dt.UTC), HOUR, -0.0, True, b"\x00"),
    (2, "", Decimal("99999999.99"), None, None, None, float("inf"), None, b""),
    (3, *[None] * 8),
]


class Table:
    def __init__(self, spark: SparkSession, folder: Path, pipeline: str) -> None:
        self.spark = spark
        self.settings = Delta(path=str(folder), deletion_vectors=True)
        self.pipeline = pipeline
        self.sink = self.another()
        self.sink.replace(VIEW.frame(spark, [(UPSERT, 1, (key, "former")) for key in range(100)]), at(1))

    def another(self) -> DeltaSink:
        sink = DeltaSink(self.settings, self.pipeline, VIEW.spec)
        sink.position()
        return sink

    def rewrite(self, rows: list[tuple[Any, ...]], lsn: int, sink: DeltaSink | None = None) -> None:
        frame = VIEW.frame(self.spark, [(UPSERT, lsn, row) for row in rows]).select(*VIEW.columns)
        kinds = map(arrow_type, VIEW.columns.values())
        columns = [pa.array([row[at_] for row in rows], kind) for at_, kind in enumerate(kinds)]
        known = frame_of(self.spark, pa.table(columns, [*VIEW.columns]), frame.schema)
        assert (sink or self.sink).rewrite(known, at(lsn)).upserts == len(rows)

    def read(self) -> list[tuple[Any, ...]]:
        """What all readers see alike."""
        path, names = self.sink.path, ", ".join(VIEW.columns)
        by_arrow = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(f"SELECT {names} FROM t").read_all())
        found = [tuple(row[name] for name in VIEW.columns) for row in by_arrow.to_pylist()]
        by_polars = polars.scan_delta(path).select(*VIEW.columns).collect().rows()
        by_spark = self.spark.read.format("delta").load(path).select(*VIEW.columns).toArrow().to_pylist()
        assert sorted(by_polars) == sorted(found)
        assert sorted(tuple(row.values()) for row in by_spark) == sorted(found)
        return sorted(found)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, pipeline_name: str) -> Table:
    return Table(spark, tmp_path, pipeline_name)


def test_all_rows_of_all_types_are_replaced_without_spark(table: Table, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0)
    table.sink.write(VIEW.frame(table.spark, [(DELETE, 2, (5,)), (UPSERT, 2, (6, "marked"))]), at(2))
    table.rewrite(ROWS, 3)
    assert table.read() == ROWS
    commit = DeltaTable(table.sink.path).history(1)[0]
    assert (commit["operation"], commit["engineInfo"]) == ("WRITE", ENGINE)
    assert table.sink.position() == at(3)
    assert table.sink.size(table.sink.held().version).rows == len(ROWS)


def test_it_goes_on_from_there_in_every_way(table: Table, spark: SparkSession):
    for lsn in range(2, CHECKPOINT_EVERY + 4):
        table.rewrite(ROWS[: lsn % 4], lsn)
    assert Path(table.sink.path, "_delta_log", "_last_checkpoint").exists()
    assert table.read() == ROWS[: (CHECKPOINT_EVERY + 3) % 4]
    last = CHECKPOINT_EVERY + 4
    table.sink.write(VIEW.frame(spark, [(UPSERT, last, row) for row in ROWS]), at(last))
    assert table.read() == ROWS
    table.sink.replace(VIEW.frame(spark, [(UPSERT, last + 1, ROWS[2])]), at(last + 1))
    assert table.read() == [ROWS[2]]
    table.rewrite([], last + 2)
    assert table.read() == []


def test_whoever_has_been_overtaken_writes_nothing(table: Table):
    slow = table.another()
    table.rewrite(ROWS[:1], 2)
    with pytest.raises(TransientError):
        table.rewrite(ROWS, 2, slow)
    assert table.read() == [ROWS[0]]
