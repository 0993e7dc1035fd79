"""Where a view is computed in full since so much of a table changed."""

from __future__ import annotations

import pytest

from jobs.refresh.worth import are_many, are_many_to_tally

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("count", "share", "view_rows", "many"),
    [
        (1_000, 1.0, MILLION, False),
        (90_000, 0.09, MILLION, False),
        (100_000, 0.1, MILLION, True),
        (250_000, 0.025, 10 * MILLION, False),
        (260_000, 0.026, 10 * MILLION, True),
        (260_000, 0.0026, 100 * MILLION, False),
        # Of 50,000 customers, 1,000 have 200,000 orders, and 2,500 half a million.
        (1_001, 0.02, 10 * MILLION, False),
        (2_500, 0.05, 10 * MILLION, True),
    ],
)
def test_by_keys(count: int, share: float, view_rows: int, many: bool) -> None:
    assert are_many(count, share, view_rows) is many


@pytest.mark.parametrize(
    ("count", "share", "relations", "many"),
    [
        (1_000, 1.0, 1, False),
        (49_000, 0.049, 1, False),
        (50_000, 0.05, 1, True),
        (250_000, 0.0025, 1, False),
        (251_000, 0.00251, 1, True),
        (251_000, 0.00251, 2, False),
        (251_000, 0.0051, 2, True),
    ],
)
def test_by_adding(count: int, share: float, relations: int, many: bool) -> None:
    assert are_many_to_tally(count, share, relations) is many
