"""Totals of groups over some rows: exact whatever their size, and none where 128 bits may not hold a sum."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from jobs.plan.tally import Fold
from jobs.refresh.lookup import TooMany
from jobs.refresh.totals import totals

LARGE = 2**63 - 1
ROWS = pa.table(
    {
        "g": pa.array(["a", None, "a", None, "b"]),
        "i": pa.array([LARGE, None, LARGE, LARGE, None], pa.int64()),
        "n": pa.array(
            [Decimal("0.10"), Decimal("-0.30"), None, Decimal(10**30), Decimal("1.00")], pa.decimal128(35, 2)
        ),
        "at": pa.array([3, 1, -(10**17), None, 2], pa.int64()).cast(pa.timestamp("us", "UTC")),
    }
)
VALUES = (None, "i", "i", "n", "n", "at")
FOLDS = (Fold.COUNT, Fold.COUNT, Fold.SUM, Fold.SUM, Fold.LEAST, Fold.GREATEST)


def test_groups_are_counted_added_and_compared() -> None:
    found = dict(totals(ROWS, ["g"], VALUES, FOLDS))
    assert found == {
        ("a",): (2, 2, 2 * LARGE, Decimal("0.10"), Decimal("0.10"), 3),
        (None,): (2, 1, LARGE, Decimal("999999999999999999999999999999.70"), Decimal("-0.30"), 1),
        ("b",): (1, 0, None, Decimal("1.00"), Decimal("1.00"), 2),
    }


def test_all_rows_are_one_group_and_no_rows_none() -> None:
    assert [*totals(ROWS, [], (None, "i"), (Fold.COUNT, Fold.SUM))] == [((), (5, 3 * LARGE))]
    assert [*totals(ROWS.slice(0, 0), [], (None,), (Fold.COUNT,))] == []
    assert [*totals(ROWS.slice(0, 0), ["g"], (None,), (Fold.COUNT,))] == []
    assert [*totals(ROWS, [], (None,), (Fold.COUNT,))] == [((), (5,))]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_may_not_fit_is_left_to_spark(sign: int) -> None:
    # A little more than a third each of what 127 bits hold.
    value = sign * Decimal(6 * 10**37)
    fits = pa.table({"n": pa.array([value], pa.decimal128(38, 0))})
    assert [*totals(fits, [], ("n",), (Fold.SUM,))] == [((), (value,))]
    with pytest.raises(TooMany):
        [*totals(pa.concat_tables([fits] * 3), [], ("n",), (Fold.SUM,))]
