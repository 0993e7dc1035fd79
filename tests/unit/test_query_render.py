"""Answers as tables, JSON and CSV."""

from __future__ import annotations

import csv
import datetime
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from rich.console import Console

from cdc.errors import ConfigError
from jobs.query.render import as_csv, as_json, as_table

US = pa.timestamp("us")
YEAR_10000 = 253402300800000001
ANSWER = pa.table(
    {
        "i": [1, None],
        "real": pa.array([0.1, float("nan")], pa.float32()),
        "double": [1e300, float("-inf")],
        "numeric": pa.array([Decimal("1.50"), Decimal("0.00")], pa.decimal128(38, 2)),
        "day": pa.array([2932897, 0], pa.date32()),
        "at": pa.array([YEAR_10000, None], US),
        "instant": pa.array([0, 500000], pa.timestamp("us", "UTC")),
        "text": ["", 'a"b,c'],
        "truth": [True, None],
        "bytes": [b"\0\xff", None],
        "list": [[1, 2], None],
        "view": pa.array(["é", "x\ny"], pa.string_view()),
    }
)


def test_csv_is_what_copy_writes():
    assert as_csv(ANSWER).splitlines()[0] == "i,real,double,numeric,day,at,instant,text,truth,bytes,list,view"
    first, second = list(csv.reader(io.StringIO(as_csv(ANSWER))))[1:]
    assert first == [
        *("1", "0.1", "1e+300", "1.50", "10000-01-01", "10000-01-01 00:00:00.000001", "1970-01-01 00:00:00+00"),
        *("", "t", "\\x00ff", "[1, 2]", "é"),
    ]
    assert second == [
        *("", "NaN", "-Infinity", "0.00", "1970-01-01", "", "1970-01-01 00:00:00.5+00", 'a"b,c', "", "", "", "x\ny")
    ]
    assert as_csv(pa.table({"a": ["", None, "\\."]})) == 'a\n""\n\n"\\."\n'


def test_json_keeps_what_numbers_would_lose():
    first, second = json.loads(as_json(ANSWER))
    assert first == {
        "i": 1,
        "real": 0.1,
        "double": 1e300,
        "numeric": "1.50",
        "day": "10000-01-01",
        "at": "10000-01-01T00:00:00.000001",
        "instant": "1970-01-01T00:00:00Z",
        "text": "",
        "truth": True,
        "bytes": "AP8=",
        "list": [1, 2],
        "view": "é",
    }
    assert second["real"] == "NaN"
    assert second["double"] == "-Infinity"
    assert second["instant"] == "1970-01-01T00:00:00.5Z"
    assert [name for name, value in second.items() if value is None] == ["i", "at", "truth", "bytes", "list"]


def test_nothing_is_still_json_and_csv():
    empty = ANSWER.slice(0, 0)
    assert json.loads(as_json(empty)) == []
    assert as_csv(empty).count("\n") == 1


def test_nested_values_survive_json():
    answer = pa.table({"s": [{"a": Decimal("1.10"), "b": [datetime.date(2026, 1, 2), None], "c": b"\0"}]})
    assert json.loads(as_json(answer)) == [{"s": {"a": "1.10", "b": ["2026-01-02", None], "c": "AA=="}}]


def test_json_refuses_two_columns_of_one_name():
    answer = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(ConfigError):
        as_json(answer)
    assert as_csv(answer) == "id,id\n1,2\n"


def shown(answer: pa.Table, **options: int) -> str:
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    console.print(as_table(answer, **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table_for_people():
    text = shown(ANSWER)
    assert "NULL" in text
    assert "2 rows" in text
    assert shown(ANSWER.slice(1)).rstrip().endswith(" 1 row")
    assert "the first 1 shown" in shown(ANSWER, rows_max=1)


def test_values_neither_style_nor_steer_the_terminal():
    text = shown(pa.table({"[bold]x": ["[red]a[/]", "\x1b[31mred\x07"]}))
    assert "[bold]x" in text
    assert "[red]a[/]" in text
    assert "\x1b" not in text
    assert "\\x1b[31mred\\x07" in text
