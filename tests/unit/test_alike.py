"""Rows are alike where they print alike: what is told of whole columns is what texts of single values tell."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.refresh.alike import among_rows, has_doubles, met, row_values
from jobs.refresh.images import paired
from jobs.upkeep.tables import NEW, OLD
from sinks.protocol import DELETE, OP, UPSERT

FIELDS: list[tuple[str, pa.DataType]] = [
    ("k", pa.int64()),
    ("t", pa.string()),
    ("f", pa.float64()),
    ("n", pa.decimal128(38, 2)),
    ("l", pa.list_(pa.float64())),
    ("b", pa.binary()),
    ("at", pa.timestamp("us", "UTC")),
]
SCHEMA = pa.schema(FIELDS)
FLOATS = st.sampled_from([0.0, -0.0, float("nan"), 1.5, None])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from([1, 2, 3, None, -(2**63)]),
    "t": st.sampled_from(["", "a", "a ", None]),
    "f": FLOATS,
    "n": st.sampled_from([Decimal("0.00"), Decimal("1.10"), Decimal("9" * 36 + ".25"), None]),
    "l": st.sampled_from([[], [0.0], [-0.0], [None], None]),
    "b": st.sampled_from([b"", b"\0", None]),
    # Beyond Python's calendar.
    "at": st.sampled_from([0, 1, -(10**17), 3 * 10**17, None]),
}
ROWS = st.lists(st.tuples(*VALUES.values()), max_size=6)
NAMES = st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=3, unique=True)


def table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = [*zip(*rows, strict=True)] or [()] * len(SCHEMA)
    return pa.Table.from_arrays(
        [
            # In two chunks, as rows of several files are.
            pa.chunked_array([_array(values[: len(rows) // 2], field), _array(values[len(rows) // 2 :], field)])
            for field, values in zip(SCHEMA, columns, strict=True)
        ],
        schema=SCHEMA,
    )


def _array(values: Sequence[Any], field: pa.Field[Any]) -> Any:
    is_time = pa.types.is_timestamp(field.type)
    return pa.array(values, pa.int64()).cast(field.type) if is_time else pa.array(values, field.type)


def texts(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> list[str]:
    places = [SCHEMA.names.index(name) for name in names]
    return [repr([row[at] for at in places]) for row in rows]


@settings(deadline=None)
@given(ROWS, ROWS, NAMES)
def test_rows_are_among_others_that_print_alike(
    ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], names: list[str]
) -> None:
    others = set(texts(theirs, names))
    for is_in in (True, False):
        wanted = [row for row, text in zip(ours, texts(ours, names), strict=True) if (text in others) is is_in]
        found = among_rows(table(ours), table(theirs).select(names), is_in=is_in)
        assert found.schema == SCHEMA
        assert row_values(found, SCHEMA.names) == row_values(table(wanted), SCHEMA.names)


@settings(deadline=None)
@given(ROWS, NAMES)
def test_doubles_print_alike(rows: list[tuple[Any, ...]], names: list[str]) -> None:
    assert has_doubles(table(rows), names) == (len(set(texts(rows, names))) < len(rows))
    values = row_values(table(rows), names)
    assert (len(set(values)) < len(values)) == has_doubles(table(rows), names)


@settings(deadline=None)
@given(ROWS, ROWS, NAMES)
def test_a_row_is_compared_with_the_one_that_has_its_key(
    ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], key: list[str]
) -> None:
    theirs = [*dict(zip(texts(theirs, key), theirs, strict=True)).values()]
    by_key = dict(zip(texts(theirs, key), texts(theirs, SCHEMA.names), strict=True))
    found = met(table(ours), table(theirs), key, SCHEMA.names)
    places = found.places.to_list()
    assert [texts(theirs, key)[at] if at is not None else None for at in places] == [
        text if text in by_key else None for text in texts(ours, key)
    ]
    differs = [by_key.get(k) != row for k, row in zip(texts(ours, key), texts(ours, SCHEMA.names), strict=True)]
    assert found.differ(SCHEMA.names).to_list() == differs


@settings(deadline=None)
@given(ROWS, ROWS, st.data())
def test_changed_rows_are_those_that_do_not_print_alike(
    befores: list[tuple[Any, ...]], changes: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    befores, changes = ([*{repr(row[0]): row for row in rows}.values()] for rows in (befores, changes))
    ops = data.draw(st.lists(st.sampled_from([UPSERT, DELETE]), min_size=len(changes), max_size=len(changes)))
    was = dict(zip(texts(befores, ["k"]), befores, strict=True))
    wanted = []
    for row, op in zip(changes, ops, strict=True):
        old, new = was.get(repr([row[0]])), row if op == UPSERT else None
        if repr(old) != repr(new):
            wanted.append((old, new))
    pairs = paired(table(befores), table(changes).append_column(OP, pa.array(ops, pa.string())), SCHEMA.names, ["k"])
    for side, rows in zip((OLD, NEW), zip(*wanted, strict=True) if wanted else ((), ()), strict=True):
        there = pairs.column(side)
        assert there.is_valid().to_pylist() == [row is not None for row in rows]
        found = pa.Table.from_struct_array(there.filter(there.is_valid()))
        assert row_values(found, SCHEMA.names) == row_values(table([row for row in rows if row]), SCHEMA.names)
