"""Which rows a target lacks after a batch, what is written down about them, and when they are too many."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import OperatorError
from jobs.batch import Target
from jobs.unfit import STRICT, LackingRows, Watch, digest, lacking, refused_by
from sinks.protocol import Position, Rejected, Unfit
from sinks.spec import Kind, ViewSpec

TARGET = Target("orders", "delta", "shop.public.orders")
OTHER = Target("late", "cache", "shop.public.orders")


def row(key: str, at: int = 1, *columns: str) -> Unfit:
    return Unfit(digest(key.encode()), f"shop.public.orders@0:{at}", at * 10, columns or ("price",))


def view(*reads: str) -> ViewSpec:
    known = frozenset(reads) if reads else None
    return ViewSpec("v", Kind.ROWWISE, "public", "t", ("id",), ("id",), ("id",), "", "", (), "f", reads=known)


class Letters:
    """Takes the place of the dead-letter topic."""

    def __init__(self) -> None:
        self.written: list[tuple[Target, Rejected]] = []

    def write(self, target: Target, refused: list[Rejected]) -> None:
        self.written += [(target, each) for each in refused]


@pytest.fixture
def letters() -> Letters:
    return Letters()


def rows_of(letters: Any, *, limit: int = 3, tolerated: bool = True) -> LackingRows:
    return LackingRows(letters, limit, tolerated=tolerated)


def keys(*names: str) -> frozenset[str]:
    return frozenset(digest(name.encode()) for name in names)


def test_a_view_refuses_the_rows_whose_unfit_columns_it_reads():
    price, day, both = row("a"), row("b", 2, "day"), row("c", 3, "day", "price")
    assert refused_by(view("id", "day"), [price, day, both]) == (day, both)
    assert refused_by(view("id"), [price, day, both]) == ()
    assert refused_by(view(), [price, day, both]) == (price, day, both)


def test_what_has_not_changed_is_still_lacking():
    before = [row("a"), row("b", 2), row("c", 3)]
    assert lacking(before, keys("a", "b"), [row("b", 9)]) == (row("c", 3), row("b", 9))


def test_a_letter_is_written_for_every_refused_version_and_the_position_says_what_is_lacking(letters: Letters):
    rows = rows_of(letters)
    after = rows.withhold(TARGET, (row("a"), row("b", 2)), frozenset(), replaced=False)
    rows.settle(TARGET, after)
    after = rows.withhold(TARGET, (row("a", 5),), keys("a"), replaced=False)
    rows.settle(TARGET, after)
    assert [each.at[-1] for _, each in letters.written] == ["1", "2", "5"]
    assert all(each.columns == ("price",) for _, each in letters.written)
    position = Position(100, 1, {"t": (1,)})
    assert rows.marked(TARGET, position) == Position(100, 1, {"t": (1,)}, (row("b", 2), row("a", 5)))
    assert rows.marked(OTHER, position) == position


def test_a_replaced_target_lacks_what_the_batch_refuses_and_known_rows_are_not_written_again(letters: Letters):
    rows = rows_of(letters)
    rows.locate({TARGET: Position(1, 1, {}, (row("a"), row("gone", 2))), OTHER: None})
    assert rows.withhold(TARGET, (row("a"), row("new", 7)), frozenset(), replaced=True) == (row("a"), row("new", 7))
    assert [each.at[-1] for _, each in letters.written] == ["7"]


def test_an_unsettled_batch_changes_nothing(letters: Letters):
    rows = rows_of(letters)
    rows.withhold(TARGET, (row("a"),), frozenset(), replaced=False)
    assert rows.withhold(TARGET, (), frozenset(), replaced=False) == ()


def test_the_limit_counts_what_is_lacking_and_nothing_is_written_above_it(letters: Letters):
    rows = rows_of(letters, limit=2)
    rows.locate({TARGET: Position(1, 1, {}, (row("a"), row("b", 2)))})
    assert len(rows.withhold(TARGET, (row("a", 5),), frozenset(), replaced=False)) == 2
    letters.written.clear()
    with pytest.raises(OperatorError) as caught:
        rows.withhold(TARGET, (row("c", 6),), frozenset(), replaced=False)
    assert caught.value.code == "DEAD_LETTERS"
    assert letters.written == []
    assert len(rows.withhold(TARGET, (row("c", 6),), keys("a"), replaced=False)) == 2


def test_fewer_rows_than_before_are_never_too_many(letters: Letters):
    """A limit that was lowered does not keep a batch from healing rows."""
    rows = rows_of(letters, limit=0)
    rows.locate({TARGET: Position(1, 1, {}, (row("a"), row("b", 2)))})
    assert rows.withhold(TARGET, (), keys("a"), replaced=False) == (row("b", 2),)


def test_what_to_look_for(letters: Letters):
    rows = rows_of(letters)
    assert rows.watch([TARGET, OTHER]) == Watch(frozenset(), 3)
    rows.locate({TARGET: Position(1, 1, {}, (row("a"),)), OTHER: Position(1, 1, {}, (row("b", 2),))})
    assert rows.watch([TARGET, OTHER]) == Watch(keys("a", "b"), 3)
    assert rows.watch([OTHER]) == Watch(keys("b"), 3)


def test_where_the_first_such_row_stops_known_ones_are_looked_for_all_the_same(letters: Letters):
    rows = rows_of(letters, tolerated=False)
    assert rows.watch([TARGET]) == STRICT
    rows.locate({TARGET: Position(1, 1, {}, (row("a"),))})
    assert rows.watch([TARGET]) == Watch(keys("a"), None)
