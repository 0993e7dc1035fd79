"""A Delta table of ten orders and each way of writing to it, as fixtures: `way`, `make`, `frame` and `sink`."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import sinks.delta.direct
import sinks.delta.marked
import sinks.delta.size
from cdc.settings import Delta
from sinks.delta import DeltaSink
from sinks.protocol import AT, LSN, OP, UPSERT, Position
from sinks.spec import Kind, ViewSpec

COLUMNS = {"id": "bigint", "name": "string", "price": "decimal(10,2)"}
Row = tuple[Any, ...]

WAYS = ("marked", "direct", "replace_keys", "merge")


def force(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This way, however large the table and the batch are."""
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0 if way == "marked" else 1 << 40)
    monkeypatch.setattr(sinks.delta.direct, "TABLE_BYTES_MAX", 1 << 30 if way == "direct" else -1)
    monkeypatch.setattr(sinks.delta.size, "KEYS_MAX", 0 if way == "merge" else 1_000)


@pytest.fixture(name="way", params=WAYS)
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    force(request.param, monkeypatch)
    return request.param


def view(key: tuple[str, ...] = ("id",), columns: dict[str, str] = COLUMNS, fingerprint: str = "first") -> ViewSpec:
    return ViewSpec("orders", Kind.MIRROR, "public", "t", key, key, tuple(columns), "", "", (), fingerprint)


def at(lsn: int) -> Position:
    """A position whose other fields follow from its LSN."""
    return Position(lsn, lsn * 1000, {"t": (lsn, 2 * lsn)})


@pytest.fixture(name="make")
def sink_of(tmp_path: Path) -> Callable[..., DeltaSink]:
    """A sink of this view, or of orders, as another process would make it."""
    return lambda spec=None: DeltaSink(Delta(path=str(tmp_path), deletion_vectors=True), "shop", spec or view())


@pytest.fixture(name="frame")
def frame_of(spark: SparkSession) -> Callable[..., DataFrame]:
    """A DataFrame of (op, row); a delete's row needs only its key."""

    def frame(*changes: tuple[str, Row], columns: dict[str, str] = COLUMNS) -> DataFrame:
        rows = [(*row, *[None] * (len(columns) - len(row)), op, 7, "t@0:1") for op, row in changes]
        kinds = {**columns, OP: "string", LSN: "bigint", AT: "string"}
        return spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in kinds.items()))

    return frame


FIRST = [(UPSERT, (key, f"n{key}", Decimal("1.00"))) for key in range(10)]


@pytest.fixture(name="sink")
def sink_of_ten(make, frame) -> DeltaSink:
    """A sink that holds FIRST at position 100."""
    sink = make()
    sink.replace(frame(*FIRST), at(100))
    return sink


def rows(sink: DeltaSink) -> dict[Any, Row]:
    """Rows by the first column, each there once."""
    found = list(sink.rows())
    by_key = {row[0]: row for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key
