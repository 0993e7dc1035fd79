"""Groups folded in this process are what all of their rows say, or unsure where only these can tell."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.plan.nodes import Aggregate, Attribute, Expr, Filter, Scan
from jobs.plan.tally import Tally, tallied
from jobs.plan.types import INT4, INT8
from jobs.refresh.folding import folded, plain_tally, touched
from jobs.refresh.lookup import TooMany
from jobs.upkeep.tables import NEW, OLD
from jobs.upkeep.tallying import UNSURE

GROUP, VALUE, OTHER = Attribute(1, "g", INT4), Attribute(2, "x", INT4), Attribute(3, "y", INT4)
SCAN = Scan("t", (GROUP, VALUE, OTHER), ("g", "x", "y"), ())
READ = frozenset({VALUE})
CALLS = (
    (Attribute(4, "n", INT8), Expr("count(1)", INT8, frozenset())),
    (Attribute(5, "sum", INT8), Expr("sum(c2)", INT8, READ)),
    (Attribute(6, "min", INT4), Expr("min(c2)", INT4, READ)),
    (Attribute(7, "max", INT4), Expr("max(c3)", INT4, frozenset({OTHER}))),
)
FIELDS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()),
    ("g", pa.int32()),
    ("x", pa.decimal128(30, 2)),
    ("y", pa.string()),
]
Row = tuple[int, int | None, Decimal | None, str | None]

values = st.none() | st.decimals(-3, 3, places=2, allow_nan=False)
rows = st.dictionaries(
    st.integers(0, 6), st.tuples(st.none() | st.integers(1, 2), values, st.none() | st.sampled_from("aé\U0001f600z"))
)


def tally(groups: tuple[Attribute, ...] = (GROUP,)) -> Tally:
    found = tallied(Aggregate(SCAN, groups, CALLS), (*groups, *(column for column, _ in CALLS)))
    assert found is not None
    return found[1]


def answer(of: Tally, found: Sequence[Row]) -> pa.Table:
    """What all rows of each group say."""
    groups: dict[tuple[int | None, ...], list[Row]] = {} if of.aggregate.groups else {(): []}
    for row in found:
        groups.setdefault(row[1:2] if of.aggregate.groups else (), []).append(row)
    results: dict[str, list[Any]] = {column.sql: [] for column in of.aggregate.columns}
    for key, members in groups.items():
        adds = [row[2] for row in members if row[2] is not None]
        names = [row[3] for row in members if row[3] is not None]
        for column, value in zip(of.aggregate.groups, key, strict=True):
            results[column.sql].append(value)
        for column, expr in of.aggregate.calls:
            said = {
                "count(1)": len(members),
                "count(c2)": len(adds),
                "sum(c2)": sum(adds) if adds else None,
                "min(c2)": min(adds, default=None),
                "max(c3)": max(names, key=lambda name: name.encode(), default=None),
            }
            results[column.sql].append(said[expr.sql])
    kinds = {"c1": pa.int32(), "c5": FIELDS[2][1], "c6": FIELDS[2][1], "c7": pa.string()}
    return pa.table({name: pa.array(each, kinds.get(name, pa.int64())) for name, each in results.items()})


def pairs(before: dict[int, Any], after: dict[int, Any]) -> pa.Table:
    differ = [each for each in sorted({*before, *after}) if before.get(each) != after.get(each)]
    kind = pa.struct(FIELDS)

    def side(rows: dict[int, Any]) -> Any:
        found = [
            dict(zip(("id", "g", "x", "y"), (each, *rows[each]), strict=True)) if each in rows else None
            for each in differ
        ]
        return pa.array(found, kind)

    return pa.table({OLD: side(before), NEW: side(after)})


def listed(rows: dict[int, Any]) -> list[Row]:
    return [(each, *row) for each, row in rows.items()]


@pytest.mark.parametrize("groups", [(GROUP,), ()], ids=["groups", "one row"])
@given(before=rows, after=rows)
def test_folded_groups_are_what_their_rows_say(
    groups: tuple[Attribute, ...], before: dict[int, Any], after: dict[int, Any]
):
    of = tally(groups)
    plain = plain_tally(of)
    assert plain is not None
    changed = touched(plain, pairs(before, after))
    found = folded(plain, changed, answer(of, listed(before)))
    expected = {_key(of, row): row for row in answer(of, listed(after)).to_pylist()}
    lost = [_group(of, row) for row in changed.column(OLD).to_pylist() if row is not None]
    for row in found.to_pylist():
        key, unsure = _key(of, row), row.pop(UNSURE)
        assert not unsure or key in lost, "nothing went, so all can be told"
        if not unsure and (row[of.rows.sql] or not groups):
            assert row == expected[key]
        assert unsure or row[of.rows.sql] or not groups or key not in expected
        expected.pop(key, None)
    untouched = {_key(of, row): row for row in answer(of, listed(before)).to_pylist()}
    assert all(untouched[key] == row for key, row in expected.items())


def _key(of: Tally, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column.sql] for column in of.aggregate.groups)


def _group(of: Tally, row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["g"],) if of.aggregate.groups else ()


ONE = {1: (1, Decimal("1.00"), "a")}


def test_a_row_put_right_by_another_hand_is_unsure():
    of = tally()
    plain = plain_tally(of)
    assert plain is not None
    stored = answer(of, listed(ONE))
    hidden = next(column.sql for column in of.hidden)
    at = stored.column_names.index(hidden)
    stored = stored.set_column(at, hidden, pa.array([None], pa.int64()))
    found = folded(plain, pairs({}, {2: ONE[1]}), stored)
    assert found.column(UNSURE).to_pylist() == [True]


@pytest.mark.parametrize("kind", [pa.decimal128(3, 2), pa.float64()], ids=["too large", "inexact"])
def test_what_its_type_cannot_hold_or_add_exactly_is_left_to_spark(kind: pa.DataType):
    of = tally()
    plain = plain_tally(of)
    assert plain is not None
    many = {each: (1, Decimal("3.00"), None) for each in range(5)}
    with pytest.raises(TooMany):
        folded(plain, pairs({}, many), _cast(answer(of, listed(ONE)), kind))


def _cast(stored: pa.Table, kind: pa.DataType) -> pa.Table:
    at = stored.column_names.index("c5")
    return stored.set_column(at, "c5", stored.column("c5").cast(kind))


@pytest.mark.parametrize(
    "call", [Expr("count(DISTINCT c2)", INT8, READ), Expr("sum(c2 + 1)", INT8, READ), Expr("bool_and(c2)", INT8, READ)]
)
def test_what_is_not_plain_is_left_to_spark(call: Expr):
    plain = tally()
    aggregate = Aggregate(SCAN, (GROUP,), (*CALLS, (Attribute(20, "more", INT8), call)))
    assert plain_tally(Tally(aggregate, plain.rows, plain.filled, plain.hidden, plain.sign)) is None


def test_filtered_rows_are_left_to_spark():
    plain = tally()
    aggregate = Aggregate(Filter(SCAN, (Expr("c2 > 1", INT4, READ),)), (GROUP,), CALLS)
    assert plain_tally(Tally(aggregate, plain.rows, plain.filled, plain.hidden, plain.sign)) is None
