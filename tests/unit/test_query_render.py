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
from jobs.query.render import as_csv, as_json, print_table

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


FLOATS = [0.00001, 0.0001, 1e15, 123456789012345.0, 100000.0, 1e6, -0.0, 1.5, float("nan"), float("inf"), None]


def test_floats_are_as_postgres_prints_them():
    # SELECT unnest(..)::float8, and ::float4, of Postgres 17.
    double = ["1e-05", "0.0001", "1e+15", "123456789012345", "100000", "1000000", "-0", "1.5", "NaN", "Infinity", ""]
    real = ["1e-05", "0.0001", "1e+15", "1.2345679e+14", "100000", "1e+06", "-0", "1.5", "NaN", "Infinity", ""]
    answer = pa.table({"double": pa.array(FLOATS, pa.float64()), "real": pa.array(FLOATS, pa.float32())})
    assert [line.split(",") for line in as_csv(answer).splitlines()[1:]] == [
        list(each) for each in zip(double, real, strict=True)
    ]


def test_json_of_nested_floats_is_json():
    numbers = [1.5, float("nan"), float("-inf"), None]
    nested = pa.array([{"a": numbers}], pa.struct([("a", pa.list_(pa.float64()))]))
    pairs = pa.array([[("k", float("nan"))]], pa.map_(pa.string(), pa.float64()))
    real = pa.array([[0.1]], pa.list_(pa.float32()))
    answer = pa.table({"list": pa.array([numbers]), "nested": nested, "pairs": pairs, "real": real})
    told = [1.5, "NaN", "-Infinity", None]

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(as_json(answer), parse_constant=refuse)
    assert found == [{"list": told, "nested": {"a": told}, "pairs": [["k", "NaN"]], "real": [0.1]}]
    [row] = list(csv.reader(io.StringIO(as_csv(answer))))[1:]
    assert [json.loads(cell, parse_constant=refuse) for cell in row] == [told, {"a": told}, [["k", "NaN"]], [0.1]]


def shown(answer: pa.Table, width: int = 200, *, terminal: bool = False, **options: int) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=terminal, color_system=None)
    print_table(answer, console, **options)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_table_for_people():
    text = shown(ANSWER)
    assert "NULL" in text
    assert "2 rows" in text
    assert shown(ANSWER.slice(1)).rstrip().endswith(" 1 row")
    assert "the first 1 shown" in shown(ANSWER, rows_max=1)


UUIDS = [f"{n:08x}-1111-4222-8333-{n:012x}" for n in range(3)]
WIDE = pa.table(dict.fromkeys("abcd", UUIDS))


def test_a_table_that_is_piped_is_as_wide_as_its_values():
    long = pa.table({"id": [1], "text": ["x" * 5000]})
    assert "x" * 5000 in shown(long, 80)
    lines = shown(WIDE, 80).splitlines()[2:]
    assert [line.count(uuid) for line, uuid in zip(lines, UUIDS, strict=False)] == [4, 4, 4]
    assert len(shown(pa.table({"id": [1]}), 80).splitlines()[0]) < 10


@pytest.mark.parametrize("width", [80, 40, 10])
def test_a_terminal_breaks_values_and_cuts_none(width: int):
    text = shown(WIDE, width, terminal=True)
    assert "…" not in text
    rows = [line.split("│") for line in text.splitlines()[2:] if "│" in line]
    assert ["".join(row[at].strip() for row in rows) for at in range(4)] == ["".join(UUIDS)] * 4
    many = pa.table({f"c{n}": ["a value"] for n in range(40)})
    assert shown(many, width, terminal=True).count("a value") == 40


def test_values_neither_style_nor_steer_the_terminal():
    text = shown(pa.table({"[bold]x": ["[red]a[/]", "\x1b[31mred\x07"]}))
    assert "[bold]x" in text
    assert "[red]a[/]" in text
    assert "\x1b" not in text
    assert "\\x1b[31mred\\x07" in text
