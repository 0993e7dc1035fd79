"""Derived tables are plain Delta: deltalake and polars open what the sink wrote without options and read every type."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from cdc.settings import Delta
from sinks.delta import DeltaSink, direct
from sinks.protocol import UPSERT, Position
from tests.support.sinks import View

UTC = datetime.UTC
ROWS: dict[str, Any] = {
    "id": pa.array([1, 2], pa.int64()),
    "small": pa.array([-7, None], pa.int16()),
    "paid": pa.array([True, None]),
    "total": pa.array([Decimal("1.50"), Decimal("-99999999.99")], pa.decimal128(10, 2)),
    "day": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "at": pa.array([datetime.datetime.fromisoformat("1969-12-31T23:59:59.999999"), None], pa.timestamp("us")),
    "instant": pa.array([datetime.datetime(2026, 11, 18, 10, 40, 13, 500000, UTC), None], pa.timestamp("us", "UTC")),
    "note": pa.array(["naïve 😀", None]),
    "bytes": pa.array([b"\x00\xff", None]),
    "weight": pa.array([0.1, None]),
    "B%20b": pa.array(["escaped", None]),
}


VIEW = View(
    {
        "id": "bigint",
        "small": "smallint",
        "paid": "boolean",
        "total": "decimal(10,2)",
        "day": "date",
        "at": "timestamp_ntz",
        "instant": "timestamp",
        "note": "string",
        "bytes": "binary",
        "weight": "double",
        "B%20b": "string",
    },
    name="public.orders",
)


@pytest.fixture(params=["spark", "delta-rs"])
def derived(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A table as apply leaves it: replaced by Spark, then changed by one of the two writers."""
    monkeypatch.setattr(direct, "TABLE_BYTES_MAX", -1 if request.param == "spark" else 1 << 30)
    sink = DeltaSink(Delta(path=str(tmp_path)), "shop", VIEW.spec)
    first, second = (tuple(row.values()) for row in expected())
    sink.replace(VIEW.frame(spark, [(UPSERT, 1, first)]), Position(10, 10, {}))
    sink.write(VIEW.frame(spark, [(UPSERT, 11, first), (UPSERT, 12, second)]), Position(20, 20, {}))
    return Path(sink.path)


def expected() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(ROWS).to_pylist()
    return rows


def test_deltalake_opens_it(derived: Path):
    assert DeltaTable(str(derived)).to_pyarrow_table().sort_by("id").to_pylist() == expected()


def test_its_query_engine_opens_it(derived: Path):
    found = QueryBuilder().register("t", DeltaTable(str(derived))).execute("SELECT * FROM t ORDER BY id").read_all()
    assert pa.table(found).to_pylist() == expected()


def test_polars_opens_it(derived: Path):
    assert polars.read_delta(str(derived)).sort("id").to_dicts() == expected()
    lazy = polars.scan_delta(str(derived)).filter(polars.col("id") == 2).select("id", "total").collect()
    assert lazy.to_dicts() == [{"id": 2, "total": Decimal("-99999999.99")}]


def test_an_older_version_can_be_opened(derived: Path):
    assert DeltaTable(str(derived), version=0).to_pyarrow_table().num_rows == 1
    assert polars.read_delta(str(derived), version=0).height == 1
