"""States and versions as SQL computes them from a log, against a replay of the same changes."""

from __future__ import annotations

import tempfile
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.history import sql
from sinks.history.reach import Shape

SHAPE = Shape(0, ("id", "line"), ("id", "line", "value%@2"))
LAST = 60

changes = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["a", "b"]),
        st.sampled_from("cuudtr"),
        st.one_of(st.none(), st.integers(0, 2)),
        st.booleans(),
    ),
    max_size=25,
)
"""Key, operation, value, and whether it is in the transaction of the one before."""

Key = tuple[int, str]

each_makes_a_table = settings(max_examples=settings().max_examples // 15)


def logged(made: list[Any]) -> list[dict[str, Any]]:
    rows, lsn, ordinal = [], 8, 1
    for number, line, op, value, together in made:
        lsn, ordinal = (lsn, ordinal + 2) if together else (lsn + 2, 1)
        rows.append({"id": number, "line": line, "value": value, "op": op, "lsn": lsn, "ordinal": ordinal})
    return rows


def as_delta(rows: list[dict[str, Any]], path: str) -> DeltaTable:
    """In any order: files and rows have none."""
    columns: dict[str, Any] = {
        "id": pa.array([row["id"] for row in rows], pa.int64()),
        "line": pa.array([row["line"] for row in rows], pa.string()),
        "value": pa.array(["of another type"] * len(rows), pa.string()),
        "value%@2": pa.array([None if row["op"] in "dt" else row["value"] for row in rows], pa.int64()),
        "__op": pa.array([row["op"] for row in rows], pa.string()),
        "__lsn": pa.array([row["lsn"] for row in rows], pa.int64()),
        "__ordinal": pa.array([row["ordinal"] for row in rows], pa.int64()),
        "__ts": pa.array([row["lsn"] * 1000 for row in rows], pa.timestamp("us", tz="UTC")),
    }
    whole = pa.table(columns)
    write_deltalake(path, whole.take(pa.array(range(0, len(rows), 2), pa.int64())))
    write_deltalake(path, whole.take(pa.array(range(1, len(rows), 2), pa.int64())), mode="append")
    return DeltaTable(path)


def state_of(rows: list[dict[str, Any]], lsn: int) -> dict[Key, Any]:
    state: dict[Key, Any] = {}
    for row in rows:
        if row["lsn"] < lsn:
            key = row["id"], row["line"]
            if row["op"] in "dt":
                state.pop(key, None)
            else:
                state[key] = row["value"]
    return state


def asked(table: DeltaTable, select: str) -> list[dict[str, Any]]:
    found = QueryBuilder().register("log", table).execute(select).read_all()
    return pa.table(found).to_pylist()


@each_makes_a_table
@given(changes)
def test_states_and_versions_are_what_a_replay_gives(made):
    rows = logged(made)
    with tempfile.TemporaryDirectory() as folder:
        table = as_delta(rows, folder)
        versions = asked(table, sql.versions("log", SHAPE, LAST + 1))
        for lsn in range(8, LAST + 1):
            expected = state_of(rows, lsn)
            inside = [
                each
                for each in versions
                if each["valid_from_lsn"] < lsn and (each["valid_to_lsn"] is None or lsn <= each["valid_to_lsn"])
            ]
            assert {(each["id"], each["line"]): each["value"] for each in inside} == expected
            assert len(inside) == len(expected)
            if lsn % 7 == 0:
                state = asked(table, sql.state("log", SHAPE, lsn))
                assert {(each["id"], each["line"]): each["value"] for each in state} == expected
                assert len(state) == len(expected)
        assert all(each["is_current"] == (each["valid_to_lsn"] is None) for each in versions)
        assert all(each["valid_from"].microsecond == each["valid_from_lsn"] * 1000 for each in versions)


@each_makes_a_table
@given(changes, st.integers(8, LAST), st.integers(8, LAST))
def test_rows_that_are_older_than_where_rows_count_are_not_seen(made, since, lsn):
    rows = logged(made)
    shape = Shape(0, SHAPE.key, SHAPE.columns, since)
    with tempfile.TemporaryDirectory() as folder:
        state = asked(as_delta(rows, folder), sql.state("log", shape, lsn))
        later = [row for row in rows if row["lsn"] >= since]
        assert {(each["id"], each["line"]): each["value"] for each in state} == state_of(later, lsn)
