"""Rows read by their values, of files by Spark and by delta-rs, which say different things of what they hold."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import jobs.refresh.data_files
import jobs.refresh.lookup
from cdc.settings import Delta
from jobs.refresh.alike import row_values
from jobs.refresh.data_files import data_files
from jobs.refresh.lookup import TooMany, rows_with
from sinks.delta import DeltaSink, commit
from sinks.protocol import UPSERT, Position
from tests.support.sinks import View, arrow_type

COUNT = 24
COLUMNS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "id": ("bigint", lambda at: at),
    "small": ("int", lambda at: None if at < 6 else at % 5),
    "paid": ("boolean", lambda at: (True, False, None)[at % 3]),
    "total": ("decimal(38,2)", lambda at: None if at % 7 == 0 else Decimal(f"{10**30 + at % 4}.01")),
    "day": ("date", lambda at: None if at % 5 == 0 else dt.date(1, 1, 1) + dt.timedelta(at % 6)),
    "note": ("string", lambda at: None if at % 4 == 0 else "n" * 40 + str(at % 6)),
    "bytes": ("binary", lambda at: None if at % 4 == 1 else bytes([at % 3])),
}
"""Some files have nothing but NULL in a column, and equal values lie in several."""
KINDS = {name: kind for name, (kind, _) in COLUMNS.items()}


def row(at: int) -> tuple[Any, ...]:
    return tuple(value(at) for _, value in COLUMNS.values())


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of four rows by Spark, of which delta-rs has replaced some by its own."""
    view = View(KINDS)
    sink = DeltaSink(Delta(path=str(tmp_path_factory.mktemp("lookup"))), "shop", view.spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commit, "ROWS_PER_FILE_MAX", 4)
        sink.replace(view.frame(spark, [(UPSERT, 1, row(at)) for at in range(COUNT)]).coalesce(1), Position(1, 1, {}))
    changed = [(UPSERT, 2, (at, *row(at + 1)[1:])) for at in (0, 9, 10)]
    sink.write(view.frame(spark, changed), Position(2, 2, {}))
    by = {commit.get("engineInfo", "").split("/")[0] for commit in DeltaTable(sink.path).history()}
    assert len(by) == 2
    assert len(DeltaTable(sink.path).file_uris()) > 3
    return sink.path


@pytest.fixture(params=["polars", "arrow"], autouse=True)
def _reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either of the two that read files."""
    if request.param == "arrow":
        monkeypatch.setattr(jobs.refresh.data_files, "can_read", lambda *_: False)


def everything(path: str) -> pa.Table:
    # Without a filter, nothing is left out.
    return pa.table(DeltaTable(path).to_pyarrow_table())


@pytest.mark.parametrize("column", COLUMNS)
def test_rows_with_each_value_are_all_rows_with_it(table: str, column: str):
    rows = everything(table)
    for value in dict.fromkeys(rows.column(column).to_pylist()):
        keys = pa.table({column: pa.array([value], arrow_type(KINDS[column]))})
        found = rows_with(table, {}, 1, list(COLUMNS), keys)
        wanted = [each for each in row_values(rows, list(COLUMNS)) if each in matching(rows, column, value)]
        assert sorted(row_values(found, list(COLUMNS)), key=str) == sorted(wanted, key=str), value


def matching(rows: pa.Table, column: str, value: Any) -> set[Any]:
    pairs = zip(rows.column(column).to_pylist(), row_values(rows, list(COLUMNS)), strict=True)
    return {each for own, each in pairs if own == value and type(own) is type(value)}


@pytest.mark.parametrize("column", COLUMNS)
def test_rows_with_any_of_the_values_are_all_rows(table: str, column: str):
    values = everything(table).column(column).unique()
    keys = pa.Table.from_arrays([values.cast(arrow_type(KINDS[column]))], [column])
    assert rows_with(table, {}, 1, ["id"], keys).num_rows == COUNT


def test_files_that_cannot_hold_a_number_or_a_day_are_left_out(table: str):
    files = data_files(DeltaTable(table))
    every = len(files.likely({}))
    few = files.likely({"id": pa.array([3, 2])})
    assert 1 <= len(few) < every
    assert not files.likely({"id": pa.array([1000])})
    assert len(files.likely({"id": pa.array([3, None])})) == every
    assert len(files.likely({"day": pa.array([dt.date(1900, 1, 1)])})) < every
    assert len(files.likely({"note": pa.array(["a"])})) == every


def test_a_file_from_before_a_column_came_has_null_in_it(tmp_path: Path):
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "note": ["a", "b"]}))
    write_deltalake(tmp_path, pa.table({"id": [3], "note": ["c"], "more": [7]}), mode="append", schema_mode="merge")
    keys = pa.table({"id": [2, 3]})
    found = rows_with(str(tmp_path), {}, 1, ["id", "more"], keys)
    assert sorted(found.to_pylist(), key=str) == [{"id": 2, "more": None}, {"id": 3, "more": 7}]
    assert rows_with(str(tmp_path), {}, 1, ["id"], pa.table({"more": pa.array([None], pa.int64())})).num_rows == 2


def test_more_rows_than_belong_into_this_process_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_deltalake(tmp_path, pa.table({"id": list(range(60)), "kind": [0] * 60}))
    keys = pa.table({"kind": [0]})
    for most, fits in ((60, True), (59, False)):
        monkeypatch.setattr(jobs.refresh.data_files, "ROWS_MAX", most)
        monkeypatch.setattr(jobs.refresh.lookup, "ROWS_MAX", most)
        with nullcontext() if fits else pytest.raises(TooMany):
            assert rows_with(str(tmp_path), {}, 0, ["id"], keys).num_rows == 60
