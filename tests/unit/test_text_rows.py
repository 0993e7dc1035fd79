"""Rows as Postgres prints them, as values of a sink's types: exact, or left out and counted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from jobs.text_rows import Shape, changes, is_ours, keys_as_stored
from sinks.protocol import DELETE, OP, UPSERT

TYPES = {
    "id": "bigint",
    "b": "boolean",
    "n": "decimal(10,2)",
    "d": "date",
    "ts": "timestamp_ntz",
    "tz": "timestamp",
    "raw": "binary",
    "f": "double",
    "t": "string",
}
SHAPE = Shape(tuple(TYPES), ("id",), TYPES)
TEXTS = ("7", "t", "-0.50", "2026-11-19", "2026-11-19 10:00:00.5", "2026-11-19 10:00:00+00", "\\x00ff", "NaN", "é\t")


def test_values_are_taken_exactly() -> None:
    table, left = changes(SHAPE, [TEXTS, ("8", *[None] * 8)], [("9",)], 70)
    first, second, third = table.to_pylist()
    assert (first["id"], first["b"], first["n"], first["raw"], first["t"]) == (
        7,
        True,
        Decimal("-0.50"),
        b"\0\xff",
        "é\t",
    )
    assert (first["d"], first["ts"].microsecond) == (dt.date(2026, 11, 19), 500_000)
    assert first["tz"] == dt.datetime(2026, 11, 19, 10, tzinfo=dt.UTC)
    assert first["f"] != first["f"]
    assert {second[name] for name in TYPES if name != "id"} == {None}
    assert [row[OP] for row in (first, second, third)] == [UPSERT, UPSERT, DELETE]
    assert (third["id"], third["t"], left) == (9, None, 0)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("n", "0.005"),
        ("n", "123456789.00"),
        ("n", "NaN"),
        ("ts", "infinity"),
        ("d", "0044-03-15 BC"),
        ("t", "\0int\0001"),
    ],
)
def test_what_a_type_cannot_hold_is_left_out(column: str, text: str) -> None:
    row = tuple(text if name == column else value for name, value in zip(TYPES, TEXTS, strict=True))
    table, left = changes(SHAPE, [row, TEXTS], [], 70)
    assert (table.num_rows, left) == (1, 1)


def test_keys_in_the_sinks_types_all_of_them_or_none() -> None:
    found = keys_as_stored(SHAPE, [("7",), ("-1",)])
    assert found is not None
    assert found.to_pylist() == [{"id": 7}, {"id": -1}]
    empty = keys_as_stored(SHAPE, [])
    assert empty is not None
    assert empty.num_rows == 0
    for keys in ([("7",), (None,)], [("\0str\0007",)], [("9223372036854775808",)]):
        assert keys_as_stored(SHAPE, keys) is None
    retyped = Shape(SHAPE.columns, SHAPE.key, TYPES | {"id": "array<int>"})
    assert keys_as_stored(retyped, [("7",)]) is None
    assert is_ours(SHAPE)
    assert not is_ours(retyped)
    assert not is_ours(Shape((*SHAPE.columns, "gone"), SHAPE.key, TYPES))
