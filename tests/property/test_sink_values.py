"""Values survive their way through text and JSON, whatever they are; keys are never confused; positions come back."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.names import document_id
from sinks.cache.pattern import parse_pattern
from sinks.position import load_position, position_json
from sinks.protocol import Position, Unfit
from sinks.values import json_texts, native, plain_texts
from tests.support.sinks import arrow_type

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(38,10)": st.decimals(
        allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27
    ),
    "decimal(5,0)": st.integers(-99999, 99999).map(Decimal),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "binary": st.binary(),
    "string": TEXT,
}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("<d", left) == struct.pack("<d", right) or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and str(left) == str(right)


@pytest.mark.parametrize("kind", sorted(VALUES))
@given(data=st.data())
def test_values_come_back_from_text_and_from_json(kind: str, data: st.DataObject):
    values = data.draw(st.lists(st.none() | VALUES[kind]))
    column = pa.array(values, arrow_type(kind))
    plain, parsed = native(kind, as_json=False), native(kind, as_json=True)
    assert all(map(same, values, map(plain, plain_texts(column)))), "text"
    assert all(map(same, values, [parsed(json.loads(text)) for text in json_texts(column)])), "JSON"


@pytest.mark.parametrize("kind", sorted(VALUES))
@given(stored=st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.lists(st.integers()))
def test_what_somebody_else_stored_never_raises(kind: str, stored: Any):
    native(kind, as_json=True)(stored)
    native(kind, as_json=False)(stored)


@pytest.mark.parametrize(
    ("kind", "as_json", "stored"),
    [
        ("boolean", True, "true"),
        ("boolean", True, 1),
        ("boolean", False, "yes"),
        ("int", True, "5"),
        ("int", True, 5.0),
        ("int", True, True),
        ("int", False, "05"),
        ("int", False, " 5"),
        ("bigint", False, "1_000"),
        ("double", True, "5.5"),
        ("double", False, " 5.5"),
        ("decimal(10,2)", True, 5.25),
        ("decimal(10,2)", False, "5.25e0"),
        ("date", True, "20261118"),
        ("timestamp", True, "2026-11-18T10:40:13"),
        ("timestamp", True, "2026-11-18T10:40:13.500Z"),
        ("timestamp_ntz", True, "2026-11-18 10:40:13"),
        ("binary", True, "AAE"),
        ("string", True, 5),
        ("string", True, ["a"]),
    ],
)
def test_a_value_of_another_form_is_not_taken_for_one_of_the_type(kind: str, as_json: bool, stored: Any):
    assert native(kind, as_json=as_json)(stored) is stored


def test_an_instant_is_utc_whatever_zone_arrow_shows():
    column = pa.array([1_763_000_000_500_000], pa.timestamp("us", "Europe/Paris"))
    assert plain_texts(column) == ["2025-11-13T02:13:20.5Z"]


def test_years_beyond_python_stay_text():
    column = pa.array([253402300800000000], pa.timestamp("us"))
    assert [native("timestamp_ntz", as_json=False)(text) for text in plain_texts(column)] == ["10000-01-01T00:00:00"]


PATTERNS = [
    "{pipeline}:{view}:{generation}:{key}",
    "v:{generation}:{a}:{b}",
    "{generation}/{key}/{a}",
    "x{generation}:{b}/{a}:y",
]
PAIRS = st.tuples(TEXT, TEXT)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(left=st.tuples(st.integers(0, 200), PAIRS), right=st.tuples(st.integers(0, 200), PAIRS))
def test_cache_keys_are_equal_only_for_equal_rows(pattern: str, left: Any, right: Any):
    parsed = parse_pattern(pattern, "shop", "orders", ("a", "b"))
    assert (parsed.entry_key(*left) == parsed.entry_key(*right)) == (left == right)


COLLIDING = st.text(":/%a1", max_size=3)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(
    left=st.tuples(st.integers(0, 12), st.tuples(COLLIDING, COLLIDING)),
    right=st.tuples(st.integers(0, 12), st.tuples(COLLIDING, COLLIDING)),
)
def test_nor_for_rows_that_look_alike(pattern: str, left: Any, right: Any):
    parsed = parse_pattern(pattern, "shop", "orders", ("a", "b"))
    assert (parsed.entry_key(*left) == parsed.entry_key(*right)) == (left == right)


UNFIT = st.builds(Unfit, TEXT, TEXT, st.integers(0, 2**64 - 1), st.lists(TEXT).map(tuple))


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**53),
    st.dictionaries(TEXT, st.lists(st.integers(0)).map(tuple)),
    st.lists(UNFIT).map(tuple),
)
def test_positions_come_back(
    lsn: int, source_ts_us: int, offsets: dict[str, tuple[int, ...]], unfit: tuple[Unfit, ...]
):
    position = Position(lsn, source_ts_us, offsets, unfit)
    found = load_position(position_json(position, view="orders", generation=3))
    assert found is not None
    assert found[0] == position
    assert (found[1]["view"], found[1]["generation"]) == ("orders", 3)


@given(st.none() | TEXT | st.binary())
def test_what_is_no_position_is_none(text: Any):
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, TypeError):
        is_object = False
    assert load_position(text) is None or is_object


def test_an_empty_key_has_a_document_id():
    assert document_id([""])
