"""Rows read by their values, of files by Spark and by delta-rs, which say different things of what they hold."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdc.settings import Delta
from jobs.refresh.data_files import data_files
from jobs.refresh.lookup import row_values, rows_with
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
