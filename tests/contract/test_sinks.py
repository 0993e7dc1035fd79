"""What every sink must keep of rows and its position, whoever dies or comes late, on its real server."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from cdc.errors import OperatorError, TransientError
from sinks import executor
from sinks.protocol import DELETE, UPSERT, Sink, Written
from tests.support.sinks import (
    ORDERS,
    Change,
    Store,
    at,
    each_store,  # noqa: F401
    rows,
)

SPARK_ERRORS = (PySparkException, Py4JJavaError)

OLD = [(UPSERT, 10, (1, "one", Decimal("1.50"))), (UPSERT, 11, (2, None, None)), (UPSERT, 12, (3, "", Decimal("0.00")))]
OLD_ROWS = {row for _, _, row in OLD}


@pytest.fixture
def sink(store: Store) -> Sink:
    """A sink that holds OLD at position 100."""
    made = store.sink(ORDERS)
    assert made.replace(ORDERS.frame(store.spark, OLD), at(100)) == Written(upserts=3)
    return made


def write(store: Store, sink: Sink, lsn: int, *changes: Change) -> Written:
    return sink.write(ORDERS.frame(store.spark, changes), at(lsn))


def test_an_empty_store_has_no_position(store: Store):
    assert store.sink(ORDERS).position() is None


def test_replace_shows_its_rows_at_its_position(store: Store, sink: Sink):
    assert sink.position() == at(100)
    assert rows(sink) == OLD_ROWS


def test_another_process_sees_the_same(store: Store, sink: Sink):
    another = store.sink(ORDERS)
    assert another.position() == at(100)
    assert rows(another) == OLD_ROWS


def test_replace_with_nothing_is_empty_and_has_a_position(store: Store):
    sink = store.sink(ORDERS)
    assert sink.replace(ORDERS.frame(store.spark, []), at(7)) == Written()
    assert sink.position() == at(7)
    assert rows(sink) == set()


def test_a_batch_is_applied_and_then_the_position_moves(store: Store, sink: Sink):
    done = write(
        store,
        sink,
        200,
        (UPSERT, 150, (1, "changed", Decimal("2.00"))),
        (DELETE, 151, (2,)),
        (UPSERT, 152, (4, "new", None)),
    )
    assert done == Written(upserts=2, deletes=1)
    assert sink.position() == at(200)
    assert rows(sink) == {(1, "changed", Decimal("2.00")), (3, "", Decimal("0.00")), (4, "new", None)}


def test_a_value_that_becomes_null_is_null(store: Store, sink: Sink):
    write(store, sink, 200, (UPSERT, 150, (1, None, None)))
    assert (1, None, None) in rows(sink)


def test_an_empty_batch_moves_the_position(store: Store, sink: Sink):
    assert write(store, sink, 200) == Written()
    assert sink.position() == at(200)
    sink.advance(at(300))
    assert sink.position() == at(300)
    assert rows(sink) == OLD_ROWS


def test_a_repeated_batch_changes_nothing(store: Store, sink: Sink):
    batch = [(UPSERT, 150, (1, "changed", None)), (DELETE, 151, (2,)), (UPSERT, 152, (4, "new", None))]
    write(store, sink, 200, *batch)
    before = rows(sink)
    write(store, sink, 200, *batch)
    assert rows(sink) == before
    assert sink.position() == at(200)


def test_a_late_older_batch_changes_nothing(store: Store, sink: Sink):
    write(store, sink, 300, (UPSERT, 250, (1, "newest", None)), (DELETE, 251, (2,)), (DELETE, 252, (9,)))
    before = rows(sink)
    write(store, sink, 200, (DELETE, 150, (1,)), (UPSERT, 151, (2, "late", None)), (UPSERT, 152, (9, "late", None)))
    assert rows(sink) == before
    assert sink.position() == at(300)


def test_a_deleted_row_can_come_back(store: Store, sink: Sink):
    write(store, sink, 200, (DELETE, 150, (1,)))
    write(store, sink, 300, (UPSERT, 250, (1, "again", None)))
    assert (1, "again", None) in rows(sink)
    write(store, sink, 400, (DELETE, 350, (1,)))
    assert {key for key, _, _ in rows(sink)} == {2, 3}


def test_replace_takes_away_what_is_not_in_it(store: Store, sink: Sink):
    # An earlier LSN than what is there: the source was restored from a backup, say.
    sink.replace(ORDERS.frame(store.spark, [(UPSERT, 5, (2, "restored", None))]), at(50))
    assert sink.position() == at(50)
    assert rows(sink) == {(2, "restored", None)}
    write(store, sink, 60, (UPSERT, 55, (1, "after", None)))
    assert rows(sink) == {(2, "restored", None), (1, "after", None)}


def test_mending_puts_keys_right_and_moves_nothing(store: Store, sink: Sink):
    write(store, sink, 200, (DELETE, 150, (2,)))
    wrong = [(UPSERT, 199, (1, "wrong", None)), (UPSERT, 199, (9, "stray", None))]
    assert sink.mend(ORDERS.frame(store.spark, wrong), at(200)) == Written(upserts=2)
    assert sink.position() == at(200)
    right = [(UPSERT, 200, OLD[0][2]), (UPSERT, 200, (2, "is back", None)), (DELETE, 200, (9,)), (DELETE, 200, (8,))]
    for _ in range(2):
        assert sink.mend(ORDERS.frame(store.spark, right), at(200)) == Written(upserts=2, deletes=2)
        assert rows(sink) == {OLD[0][2], (2, "is back", None), OLD[2][2]}
        assert sink.position() == at(200)
    write(store, sink, 300, (UPSERT, 200, (1, "goes on", None)), (DELETE, 201, (2,)), (UPSERT, 202, (9, "new", None)))
    assert rows(sink) == {(1, "goes on", None), OLD[2][2], (9, "new", None)}
    assert sink.types() == ORDERS.columns


def test_a_zombie_does_not_mend(store: Store, sink: Sink):
    zombie = store.sink(ORDERS)
    assert zombie.position() == at(100)
    write(store, sink, 200, (UPSERT, 150, (1, "newer", None)), (UPSERT, 150, (4, "newer", None)))
    with pytest.raises(TransientError):
        zombie.mend(ORDERS.frame(store.spark, [(UPSERT, 100, (1, "late", None)), (DELETE, 100, (4,))]), at(100))
    assert {(1, "newer", None), (4, "newer", None)} <= rows(sink)


def test_readers_see_the_old_rows_or_the_new_ones_while_replacing(store: Store, sink: Sink):
    reader = store.sink(ORDERS)
    done = threading.Event()
    seen: list[frozenset[tuple[Any, ...]]] = []

    def read() -> None:
        while not done.is_set():
            seen.append(frozenset(rows(reader)))

    thread = threading.Thread(target=read)
    thread.start()
    new = [(UPSERT, 150 + key, (key, f"new {key}", None)) for key in range(3000)]
    try:
        sink.replace(ORDERS.frame(store.spark, new), at(10_000))
    finally:
        done.set()
        thread.join()
    seen.append(frozenset(rows(reader)))
    assert seen[0] == OLD_ROWS
    assert set(seen) <= {frozenset(OLD_ROWS), frozenset(row for _, _, row in new)}
    assert seen[-1] != OLD_ROWS


def failing(store: Store, changes: Iterable[Change], bad: int) -> Any:
    """The changes in many partitions, one of which fails while others are being written."""
    frame = ORDERS.frame(store.spark, changes).repartition(3)
    name = f"CASE WHEN id = {bad} THEN raise_error('planted') ELSE name END AS name"
    return frame.selectExpr("id", name, "price", "__op", "__lsn", "__at")


def test_a_replace_that_dies_leaves_the_old_rows_and_the_next_one_works(store: Store, sink: Sink, monkeypatch: Any):
    monkeypatch.setattr(executor, "DRIVER_BYTES_MAX", -1)
    new = [(UPSERT, 150 + key, (key, f"new {key}", None)) for key in range(500)]
    with pytest.raises(SPARK_ERRORS, match="planted"):
        sink.replace(failing(store, new, 499), at(700))
    assert sink.position() == at(100)
    assert rows(sink) == OLD_ROWS
    write(store, sink, 200, (DELETE, 150, (1,)))
    assert {key for key, _, _ in rows(sink)} == {2, 3}
    sink.replace(ORDERS.frame(store.spark, new), at(700))
    assert rows(sink) == {row for _, _, row in new}


def test_a_write_that_dies_does_not_move_the_position_and_is_repeated(store: Store, sink: Sink, monkeypatch: Any):
    monkeypatch.setattr(executor, "DRIVER_BYTES_MAX", -1)
    batch = [(UPSERT, 150 + key, (key, f"new {key}", None)) for key in range(500)]
    with pytest.raises(SPARK_ERRORS, match="planted"):
        sink.write(failing(store, batch, 499), at(700))
    again = store.sink(ORDERS)
    assert again.position() == at(100)
    again.write(ORDERS.frame(store.spark, batch), at(700))
    assert rows(again) == {row for _, _, row in batch}


def test_a_lost_store_has_no_position_and_is_not_written_to(store: Store, sink: Sink):
    store.lose(ORDERS.name)
    assert sink.position() is None
    with pytest.raises((TransientError, OperatorError)):
        write(store, sink, 200, (UPSERT, 150, (1, "alone", None)))
    assert store.sink(ORDERS).position() is None
    sink.replace(ORDERS.frame(store.spark, OLD), at(200))
    assert rows(sink) == OLD_ROWS


@pytest.mark.parametrize("rival", ["write", "replace"])
@pytest.mark.parametrize("late", ["write", "replace", "advance"])
def test_a_writer_that_was_overtaken_writes_nothing(store: Store, sink: Sink, rival: str, late: str):
    """Stopped for a while between looking and writing, say, with another apply process running meanwhile."""

    def act(how: str, by: Sink, lsn: int) -> None:
        batch = ORDERS.frame(store.spark, [(UPSERT, lsn - 1, (1, f"{how} to {lsn}", None))])
        if how == "advance":
            by.advance(at(lsn))
        else:
            getattr(by, how)(batch, at(lsn))

    zombie = store.sink(ORDERS)
    assert zombie.position() == at(100)
    act(rival, sink, 200)
    before = rows(sink), sink.position()
    with pytest.raises(TransientError):
        act(late, zombie, 300)
    assert (rows(sink), sink.position()) == before
    act("write", sink, 400)
    assert (1, "write to 400", None) in rows(sink)
    assert zombie.position() == at(400)
    act(late, zombie, 500)
    assert sink.position() == at(500)


def test_another_declaration_has_no_position_until_it_replaces(store: Store, sink: Sink):
    changed = store.sink(replace(ORDERS, fingerprint="second"))
    assert changed.position() is None
    changed.replace(ORDERS.frame(store.spark, OLD[:1]), at(200))
    assert changed.position() == at(200)
    assert store.sink(ORDERS).position() is None


def test_columns_of_another_type_are_not_mixed_in(store: Store, sink: Sink):
    other = replace(ORDERS, columns={**ORDERS.columns, "price": "string"})
    with pytest.raises(OperatorError, match="price"):
        sink.write(other.frame(store.spark, [(UPSERT, 150, (1, "one", "cheap"))]), at(200))
    assert rows(sink) == OLD_ROWS


def test_views_of_a_pipeline_do_not_touch_each_other(store: Store, sink: Sink):
    other = replace(ORDERS, name="orders_2")
    neighbour = store.sink(other)
    assert neighbour.position() is None
    neighbour.replace(other.frame(store.spark, OLD[:1]), at(1))
    neighbour.write(other.frame(store.spark, [(DELETE, 20, (1,))]), at(30))
    assert rows(neighbour) == set()
    assert rows(sink) == OLD_ROWS
    store.lose(other.name)
    assert sink.position() == at(100)
