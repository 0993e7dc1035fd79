"""Changed rows as pairs: which of them a lookup may take instead of reading the table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.refresh.images import paired, rows_of_side
from jobs.upkeep.tables import NEW, OLD
from sinks.protocol import DELETE, OP, UPSERT

BEFORE = pa.table({"id": [1, 2, 3, 4], "paid": [True, None, False, True], "rate": [0.5, 0.5, 1.0, 2.0]})
CHANGES = pa.table(
    {
        "id": [1, 2, 3, 4, 9],
        "paid": [False, True, False, None, True],
        "rate": [0.5, 0.5, 1.0, None, 9.0],
        OP: [UPSERT, UPSERT, UPSERT, DELETE, UPSERT],
    }
)
PAIRS = paired(BEFORE, CHANGES, ["id", "paid", "rate"], ["id"])
"""Of 3, which is what it was, there is none."""


def found(side: str, columns: list[str], **wanted: Any) -> list[tuple[object, ...]] | None:
    rows = rows_of_side(
        PAIRS, side, "id", {name: pa.chunked_array([pa.array(values)]) for name, values in wanted.items()}, columns
    )
    return None if rows is None else [tuple(row.values()) for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("side", "rows"),
    [(OLD, [(1, True), (2, None), (4, True)]), (NEW, [(1, False), (2, True), (9, True)])],
)
def test_changed_rows_are_at_hand_as_they_were_and_as_they_are(side: str, rows: list[tuple[object, ...]]):
    assert found(side, ["id", "paid"], id=[9, 4, 2, 1]) == rows


def test_a_row_needs_a_wanted_value_in_each_column():
    assert found(OLD, ["id"], id=[1, 2], paid=[True]) == [(1,)]
    assert found(OLD, ["id"], id=[1, 2], paid=[None]) == [(2,)]
    assert found(NEW, ["id"], id=[4]) == []


@pytest.mark.parametrize(
    "wanted",
    [{"id": [1, 3]}, {"id": [1, 77]}, {"id": [1, None]}, {"paid": [True]}, {"id": [1], "rate": [0.5]}],
    ids=["one that is what it was", "one that did not change", "NULL", "no key", "a number that equals others"],
)
def test_rows_that_others_may_be_are_not_at_hand(wanted: dict[str, list[object]]):
    assert found(NEW, ["id"], **wanted) is None


def test_a_key_of_another_width_is_the_same_key():
    narrow = {"id": pa.chunked_array([pa.array([1, 2], pa.int32())])}
    rows = rows_of_side(PAIRS, NEW, "id", narrow, ["id"])
    assert rows is not None
    assert rows.column("id").to_pylist() == [1, 2]
