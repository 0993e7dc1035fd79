"""Values, keys and names of columns come back from each sink as they went in, whatever they are, on its real server."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa

from cdc.names import delta_columns
from sinks.protocol import DELETE, UPSERT
from tests.support.sinks import (
    Store,
    View,
    at,
    each_store,  # noqa: F401
    rows,
)


def test_rows_are_found_by_their_keys(store: Store):
    many = View({"part": "string", "id": "int", "n": "decimal(10,2)"}, ("id", "part"), "many")
    sink = store.sink(many)
    stored = [(part, number, Decimal("1.50")) for part in ("it's", "é") for number in range(700)]
    sink.replace(many.frame(store.spark, [(UPSERT, 10, row) for row in stored]), at(100))
    wanted = [("it's", 5), ("é", 699), ("é", 700), ("x", 5)]
    ids, parts = pa.array([5, 699, 700, 5], pa.int32()), pa.array([part for part, _ in wanted], pa.string())
    keys = pa.table([ids, parts], names=["id", "part"])
    found = {row for row in sink.rows_of(keys) if (row[0], row[1]) in wanted}
    assert found == {("it's", 5, Decimal("1.50")), ("é", 699, Decimal("1.50"))}
    assert list(sink.rows_of(keys.slice(0, 0))) == []


AWKWARD = View(
    {
        "id": "bigint",
        "t": "string",
        "b": "boolean",
        "s": "smallint",
        "i": "int",
        "l": "bigint",
        "f": "float",
        "d": "double",
        "n": "decimal(38,10)",
        "day": "date",
        "ts": "timestamp",
        "tn": "timestamp_ntz",
        "raw": "binary",
    }
)
UTC = dt.UTC
AWKWARD_ROWS = [
    (
        *(-(2**63), "", False, -(2**15), -(2**31), -(2**63), -0.0, 5e-324, Decimal("-0.0000000001")),
        *(dt.date(1, 1, 1), dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1, 0, 0, 0, 1), b""),  # noqa: DTZ001
    ),
    (
        *(2**63 - 1, 'q"uote\\back\n\r\t\x01\x7f\u2028 é 𝄞 {"a":[1]}', True, 2**15 - 1, 2**31 - 1, 2**63 - 1),
        *(
            math.ldexp(1 + 2**-23, 100),
            1.7976931348623157e308,
            Decimal("9" * 28 + ".9999999999"),
            dt.date(9999, 12, 31),
        ),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 500000),  # noqa: DTZ001
        bytes(range(256)),
    ),
    (
        *(0, "NaN", None, 0, 0, 2**53 + 1, math.inf, -math.inf, Decimal("100.0000000000"), dt.date(1970, 1, 1)),
        *(dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC), dt.datetime(2026, 3, 29, 2, 30), b"\x00"),  # noqa: DTZ001
    ),
    (1, *[None] * 12),
    (2, "null", None, None, None, None, 0.10000000149011612, 0.1, Decimal(0).quantize(Decimal("1e-10")), *[None] * 4),
]


def test_awkward_values_come_back_as_they_went_in(store: Store):
    sink = store.sink(AWKWARD)
    changes = [(UPSERT, 10, row) for row in AWKWARD_ROWS]
    assert not sink.replace(AWKWARD.frame(store.spark, changes), at(100)).rejected
    assert rows(sink) == set(AWKWARD_ROWS)
    assert {type(value) for row in rows(sink) for value in row} == {type(v) for row in AWKWARD_ROWS for v in row}
    moved = [
        (UPSERT, 20, (row[0], *other[1:])) for row, other in zip(AWKWARD_ROWS, reversed(AWKWARD_ROWS), strict=True)
    ]
    assert not sink.write(AWKWARD.frame(store.spark, moved), at(200)).rejected
    assert rows(sink) == {row for _, _, row in moved}


def test_what_is_not_a_number_stays_so(store: Store):
    view = View({"id": "int", "f": "float", "d": "double"})
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 1, (1, math.nan, math.nan))]), at(2))
    ((key, *numbers),) = sink.rows()
    assert key == 1
    assert all(math.isnan(number) for number in numbers)


def test_trailing_zeros_and_instants_are_kept(store: Store):
    view = View({"id": "int", "n": "decimal(10,4)", "ts": "timestamp"})
    instant = dt.datetime(2026, 11, 18, 11, 40, 13, 500000, dt.timezone(dt.timedelta(hours=1)))
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 1, (1, Decimal("1.5000"), instant))]), at(2))
    ((_, number, found),) = sink.rows()
    assert str(number) == "1.5000"
    assert found == instant
    assert found.utcoffset() == dt.timedelta(0)


def test_keys_of_several_columns_are_never_confused(store: Store):
    view = View({"a": "string", "b": "string", "n": "int"}, key=("a", "b"))
    texts = ["", "a", "b", ":", "a:b", '"', '","', "[", "%3A", "\\", "é", "*", "{x}", " ", "null", "x" * 600]
    keys = [(left, right) for left in texts for right in texts]
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, (*key, n)) for n, key in enumerate(keys)]), at(100))
    assert rows(sink) == {(*key, n) for n, key in enumerate(keys)}
    gone = keys[::2]
    sink.write(view.frame(store.spark, [(DELETE, 150, key) for key in gone]), at(200))
    assert {(a, b) for a, b, _ in rows(sink)} == set(keys[1::2])


def test_any_text_can_be_a_key(store: Store):
    view = View({"k": "string", "n": "int"}, key=("k",))
    keys = [
        "",
        " ",
        "_doc",
        "a/b?c#d",
        "sha256:" + "0" * 64,
        "x" * 512,
        "x" * 513,
        "é" * 300,
        '"\n\\',
        "..",
        "*",
        "{}",
        "generation",
    ]
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, (key, n)) for n, key in enumerate(keys)]), at(100))
    assert rows(sink) == {(key, n) for n, key in enumerate(keys)}
    sink.write(view.frame(store.spark, [(DELETE, 150, (key,)) for key in keys]), at(200))
    assert rows(sink) == set()


def test_hostile_column_names_are_only_names(store: Store):
    names = [
        '"',
        "';drop table x;--",
        "../é",
        "*",
        "\\",
        "_lsn2",
        "__op",
        "a:b",
        "$x",
        "#",
        "<b>",
        " ",
        ",",
    ]
    columns = delta_columns(names)
    view = View({"id": "int", **dict.fromkeys(columns, "string")})
    row = (1, *(f"value of {name}" for name in names))
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, row)]), at(100))
    sink.write(view.frame(store.spark, [(UPSERT, 20, (2, *row[1:]))]), at(200))
    assert rows(sink) == {row, (2, *row[1:])}


def test_a_column_may_be_a_key_of_any_type(store: Store):
    view = View(
        {"day": "date", "raw": "binary", "ok": "boolean", "n": "decimal(5,2)", "v": "int"},
        key=("day", "raw", "ok", "n"),
    )
    row = (dt.date(2026, 11, 18), b"\x00\xff", True, Decimal("1.00"), 1)
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, row)]), at(100))
    sink.write(view.frame(store.spark, [(UPSERT, 20, (*row[:-1], 2))]), at(200))
    assert rows(sink) == {(*row[:-1], 2)}
