"""Envelopes: whatever the names and values, the JSON says them again; keys are injective."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.changes import UNCHANGED, Change, Op, Origin
from cdc.envelope import TableEncoder
from cdc.errors import RecordError
from tests.support import frames

ORIGIN = Origin(100, 1, 946_684_800_000_000)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
VALUES = {23: st.integers(-(2**31), 2**31 - 1).map(str), 25: texts, 16500: texts, 1700: st.integers().map(str)}


@st.composite
def tables(draw):
    columns = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    typed = [(column, draw(st.sampled_from(sorted(VALUES)))) for column in columns]
    key = draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))
    return frames.table(draw(names), typed, key, schema=draw(names))


@st.composite
def rows(draw, table):
    """A row; key columns are never NULL."""
    texts_of = (VALUES[column.base_oid] for column in table.columns)
    return tuple(
        draw(value if column.is_key else st.one_of(st.none(), value))
        for column, value in zip(table.columns, texts_of, strict=True)
    )


def as_json(table, row):
    numbers = {23}
    return {
        column.name: int(value) if value is not None and column.base_oid in numbers else value
        for column, value in zip(table.columns, row, strict=True)
    }


def key_of(table, row):
    return tuple(value for column, value in zip(table.columns, row, strict=True) if column.is_key)


@settings(max_examples=settings().max_examples // 2)
@given(tables().flatmap(lambda table: st.tuples(st.just(table), rows(table), rows(table))))
def test_a_full_update_says_both_rows_and_detects_a_new_key(case):
    table, old, new = case
    encoder = TableEncoder("shop", "db", table, 3)
    records = encoder.change_records(Change(Op.UPDATE, table, old, new), ORIGIN, 1, 2)
    events = [json.loads(record.value) for record in records if record.value is not None]
    assert events[0]["before"] == as_json(table, old)
    assert events[-1]["after"] == as_json(table, new)
    assert [event["op"] for event in events] == (["u"] if key_of(table, old) == key_of(table, new) else ["d", "c"])
    assert all((event["source"]["schema"], event["source"]["table"]) == (table.schema, table.name) for event in events)


@settings(max_examples=settings().max_examples // 2)
@given(tables().flatmap(lambda table: st.tuples(st.just(table), rows(table), rows(table))))
def test_keys_are_injective_and_never_the_truncate_key(case):
    table, one, other = case
    encoder = TableEncoder("shop", "db", table, 3)
    keys = [encoder.read_record(row, ORIGIN, 1).key for row in (one, other)]
    assert (keys[0] == keys[1]) == (key_of(table, one) == key_of(table, other))
    assert b"{}" not in keys
    decoded = json.loads(keys[0])
    assert list(decoded) == [column.name for column in table.key]
    assert tuple(map(str, decoded.values())) == key_of(table, one)


@settings(max_examples=settings().max_examples // 2)
@given(tables().flatmap(lambda table: st.tuples(st.just(table), rows(table))), st.data())
def test_an_unchanged_value_is_never_printed(case, data):
    table, row = case
    gap = data.draw(st.integers(0, len(row) - 1))
    new = (*row[:gap], UNCHANGED, *row[gap + 1 :])
    encoder = TableEncoder("shop", "db", table, 3)
    with pytest.raises(RecordError) as raised:
        encoder.change_records(Change(Op.UPDATE, table, None, new), ORIGIN, 1, 2)
    assert table.columns[gap].name in raised.value.message
    (completed,) = encoder.change_records(Change(Op.UPDATE, table, row, new), ORIGIN, 1, 2)
    assert json.loads(completed.value)["after"] == as_json(table, row)
