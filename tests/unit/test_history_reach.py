"""What a log says of how far it reaches."""

from __future__ import annotations

import pytest

from cdc.history_settings import History, duration_us
from sinks.history.folding import is_due
from sinks.history.reach import Reach, Shape, parse_reach, stored_as

KEY = ("id",)
FIRST, SECOND = Shape(5, KEY, ("id", "a")), Shape(50, KEY, ("id", "b"))


def reach(**changed) -> Reach:
    return Reach(**{"shapes": (FIRST, SECOND), "begin_lsn": 10, "begin_us": 1, **changed})


def test_it_is_read_back_equal():
    whole = reach(gaps=((20, 30),))
    assert parse_reach(whole.fields()) == whole


@pytest.mark.parametrize(("lsn", "columns"), [(5, FIRST), (6, FIRST), (50, FIRST), (51, SECOND), (10**9, SECOND)])
def test_columns_hold_from_a_position_on(lsn, columns):
    # A position contains what committed before it, so a transaction at 50 is not in the position 50.
    assert reach().shape_at(lsn) == columns


def test_a_new_shape_is_added_once_and_a_late_one_replaces():
    third = Shape(60, KEY, ("id", "c"))
    assert reach().with_shape(SECOND).shapes == (FIRST, SECOND)
    assert reach().with_shape(third).shapes == (FIRST, SECOND, third)
    other_key = Shape(50, ("k",), ("k",), 49)
    assert reach().with_shape(other_key).shapes == (FIRST, other_key)


def test_a_column_that_comes_with_another_type_has_one_more_in_the_log():
    log = {"id": "bigint", "a": "string", "a%@2": "int"}
    assert stored_as("b", "int", log, ("id", "a%@2")) == "b"
    assert stored_as("a", "int", log, ("id", "a%@2")) == "a%@2"
    assert stored_as("a", "string", log, ("id", "a%@2")) == "a"
    assert stored_as("a", "date", log, ("id", "a%@2")) == "a%@3"
    assert Shape(1, KEY, ("id", "a%@2")).stored == {"id": "id", "a": "a%@2"}


def test_gaps_that_touch_are_one():
    gaps = reach().with_gap(20, 30).with_gap(40, 50).with_gap(30, 40).gaps
    assert gaps == ((20, 50),)
    assert [reach(gaps=gaps).gap_at(lsn) for lsn in (20, 21, 49, 50)] == [None, (20, 50), (20, 50), None]


def test_what_lies_before_a_new_beginning_is_forgotten():
    folded = reach(gaps=((20, 30), (60, 70))).beginning(60, 7)
    assert (folded.begin_lsn, folded.begin_us) == (60, 7)
    assert folded.gaps == ((60, 70),)
    assert folded.shapes == (SECOND,)
    assert folded.shape_at(61) == SECOND


@pytest.mark.parametrize(("begin", "due"), [(0, True), (99, True), (101, False), (900, False)])
def test_a_log_is_folded_when_it_is_an_eighth_too_long(begin, due):
    assert is_due(begin, 1_000, 800) == due


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("15m", 900), ("2h", 7200), ("30d", 30 * 86400)])
def test_durations(text, seconds):
    assert duration_us(text) == seconds * 1_000_000
    assert History(keep=text).keep_us == seconds * 1_000_000


@pytest.mark.parametrize(
    "wrong", [{"keep": "0d"}, {"keep": "1 day"}, {"keep": "1w"}, {"tables": ["orders"]}, {"kept": 1}]
)
def test_what_is_not_meant_is_refused(wrong):
    with pytest.raises(ValueError, match=r"keep|pattern|tables|kept"):
        History.model_validate(wrong)


def test_which_tables_have_a_history():
    history = History(tables=("public.orders", "billing.*"))
    assert history.covers("public", "orders")
    assert history.covers("billing", "x")
    assert not history.covers("public", "items")
