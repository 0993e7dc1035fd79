"""Which way leads from known rows to present ones."""

from __future__ import annotations

import pytest

from jobs.refresh.ways import Way, is_unchanged, noted, readable, way
from sinks.delta.held import Held

NOW = Held(9, 100, 5)


@pytest.mark.parametrize(
    ("known", "before", "expected", "read"),
    [
        (Held(9, 100, 5), None, Way.STAY, NOW),
        (Held(7, 100, 5), None, Way.STAY, NOW),  # tidied since
        (Held(7, 100, 4), Held(8, 100, 4), Way.BATCH, Held(8, 100, 4)),
        (Held(6, 100, 3), Held(8, 100, 4), Way.COMPARE, Held(6, 100, 3)),
        (Held(7, 100, 4), None, Way.COMPARE, Held(7, 100, 4)),
        (Held(7, 99, 4), None, Way.ANEW, Held(7, 99, 4)),  # replaced since
        (Held(7, 99, 4), Held(7, 99, 4), Way.ANEW, Held(7, 99, 4)),  # replaced in this batch
        (Held(12, 100, 6), None, Way.ANEW, Held(12, 100, 6)),  # deleted, and restored from a backup
    ],
)
def test_the_cheapest_that_leads_to_the_very_rows(known: Held, before: Held | None, expected: Way, read: Held):
    assert way(known, NOW, before) is expected
    assert readable(known, NOW, before) == read


def test_nothing_known_leads_anew():
    assert way(None, NOW, Held(8, 100, 4)) is Way.ANEW


def test_what_is_noted_is_unchanged_until_a_relation_is_written():
    known = {name: Held.of(numbers) for name, numbers in noted({"a": NOW, "b": Held(1, 2, 3)}).items()}

    assert is_unchanged(known, {"a": Held(10, 100, 5), "b": Held(1, 2, 3)})
    assert not is_unchanged(known, {"a": NOW, "b": Held(2, 2, 4)})
    assert not is_unchanged({"a": NOW}, {"a": NOW, "b": Held(1, 2, 3)})
