"""What every sink must keep, on its real server."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.errors import OperatorError, TransientError
from cdc.names import delta_columns
from sinks import executor
from sinks.protocol import DELETE, UPSERT, Sink, Written
from tests.support.sinks import ORDERS, STORES, Change, Store, View, at

SPARK_ERRORS = (PySparkException, Py4JJavaError)

OLD = [(UPSERT, 10, (1, "one", Decimal("1.50"))), (UPSERT, 11, (2, None, None)), (UPSERT, 12, (3, "", Decimal("0.00")))]
OLD_ROWS = {row for _, _, row in OLD}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, spark: SparkSession, pipeline_name: str, monkeypatch: Any) -> Store:
    if request.param == "cache-hash":
        # One kind is written by executors alone; the others also see the short cut of small batches.
        monkeypatch.setattr(executor, "DRIVER_BYTES_MAX", -1)
    return STORES[request.param](request, spark, pipeline_name)


@pytest.fixture
def sink(store: Store) -> Sink:
    """A sink that holds OLD at position 100."""
    made = store.sink(ORDERS)
    assert made.replace(ORDERS.frame(store.spark, OLD), at(100)) == Written(upserts=3)
    return made


def rows(sink: Sink) -> set[tuple[Any, ...]]:
    found = list(sink.rows())
    assert len(found) == len(set(found)), "a row is there twice"
    return set(found)


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


def test_rows_are_found_by_their_keys(store: Store):
    many = View({"part": "string", "id": "int", "n": "decimal(10,2)"}, ("id", "part"), "many")
    sink = store.sink(many)
    stored = [(part, number, Decimal("1.50")) for part in ("it's", "é") for number in range(700)]
    sink.replace(many.frame(store.spark, [(UPSERT, 10, row) for row in stored]), at(100))
    wanted = [("it's", 5), ("é", 699), ("é", 700), ("x", 5)]
    ids, parts = pa.array([5, 699, 700, 5], pa.int32()), pa.array([part for part, _ in wanted], pa.string())
    keys = pa.table([ids, parts], names=["id", "part"])
    found = {row for row in sink.rows_of(keys) if (row[0], row[1]) in wanted}
    assert found == {("it's", 5, Decimal("1.50")), ("é", 699, Decimal("1.50"))}
    assert list(sink.rows_of(keys.slice(0, 0))) == []


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


AWKWARD = View(
    {
        "id": "bigint",
        "t": "string",
        "b": "boolean",
        "s": "smallint",
        "i": "int",
        "l": "bigint",
        "f": "float",
        "d": "double",
        "n": "decimal(38,10)",
        "day": "date",
        "ts": "timestamp",
        "tn": "timestamp_ntz",
        "raw": "binary",
    }
)
UTC = dt.UTC
AWKWARD_ROWS = [
    (
        *(-(2**63), "", False, -(2**15), -(2**31), -(2**63), -0.0, 5e-324, Decimal("-0.0000000001")),
        *(dt.date(1, 1, 1), dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(1, 1, 1, 0, 0, 0, 1), b""),  # noqa: DTZ001
    ),
    (
        *(2**63 - 1, 'q"uote\\back\n\r\t\x01\x7f\u2028 é 𝄞 {"a":[1]}', True, 2**15 - 1, 2**31 - 1, 2**63 - 1),
        *(
            math.ldexp(1 + 2**-23, 100),
            1.7976931348623157e308,
            Decimal("9" * 28 + ".9999999999"),
            dt.date(9999, 12, 31),
        ),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 500000),  # noqa: DTZ001
        bytes(range(256)),
    ),
    (
        *(0, "NaN", None, 0, 0, 2**53 + 1, math.inf, -math.inf, Decimal("100.0000000000"), dt.date(1970, 1, 1)),
        *(dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC), dt.datetime(2026, 3, 29, 2, 30), b"\x00"),  # noqa: DTZ001
    ),
    (1, *[None] * 12),
    (2, "null", None, None, None, None, 0.10000000149011612, 0.1, Decimal(0).quantize(Decimal("1e-10")), *[None] * 4),
]


def test_awkward_values_come_back_as_they_went_in(store: Store):
    sink = store.sink(AWKWARD)
    changes = [(UPSERT, 10, row) for row in AWKWARD_ROWS]
    assert not sink.replace(AWKWARD.frame(store.spark, changes), at(100)).rejected
    assert rows(sink) == set(AWKWARD_ROWS)
    assert {type(value) for row in rows(sink) for value in row} == {type(v) for row in AWKWARD_ROWS for v in row}
    moved = [
        (UPSERT, 20, (row[0], *other[1:])) for row, other in zip(AWKWARD_ROWS, reversed(AWKWARD_ROWS), strict=True)
    ]
    assert not sink.write(AWKWARD.frame(store.spark, moved), at(200)).rejected
    assert rows(sink) == {row for _, _, row in moved}


def test_what_is_not_a_number_stays_so(store: Store):
    view = View({"id": "int", "f": "float", "d": "double"})
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 1, (1, math.nan, math.nan))]), at(2))
    ((key, *numbers),) = sink.rows()
    assert key == 1
    assert all(math.isnan(number) for number in numbers)


def test_trailing_zeros_and_instants_are_kept(store: Store):
    view = View({"id": "int", "n": "decimal(10,4)", "ts": "timestamp"})
    instant = dt.datetime(2026, 11, 18, 11, 40, 13, 500000, dt.timezone(dt.timedelta(hours=1)))
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 1, (1, Decimal("1.5000"), instant))]), at(2))
    ((_, number, found),) = sink.rows()
    assert str(number) == "1.5000"
    assert found == instant
    assert found.utcoffset() == dt.timedelta(0)


def test_keys_of_several_columns_are_never_confused(store: Store):
    view = View({"a": "string", "b": "string", "n": "int"}, key=("a", "b"))
    texts = ["", "a", "b", ":", "a:b", '"', '","', "[", "%3A", "\\", "é", "*", "{x}", " ", "null", "x" * 600]
    keys = [(left, right) for left in texts for right in texts]
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, (*key, n)) for n, key in enumerate(keys)]), at(100))
    assert rows(sink) == {(*key, n) for n, key in enumerate(keys)}
    gone = keys[::2]
    sink.write(view.frame(store.spark, [(DELETE, 150, key) for key in gone]), at(200))
    assert {(a, b) for a, b, _ in rows(sink)} == set(keys[1::2])


def test_any_text_can_be_a_key(store: Store):
    view = View({"k": "string", "n": "int"}, key=("k",))
    keys = [
        "",
        " ",
        "_doc",
        "a/b?c#d",
        "sha256:" + "0" * 64,
        "x" * 512,
        "x" * 513,
        "é" * 300,
        '"\n\\',
        "..",
        "*",
        "{}",
        "generation",
    ]
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, (key, n)) for n, key in enumerate(keys)]), at(100))
    assert rows(sink) == {(key, n) for n, key in enumerate(keys)}
    sink.write(view.frame(store.spark, [(DELETE, 150, (key,)) for key in keys]), at(200))
    assert rows(sink) == set()


def test_hostile_column_names_are_only_names(store: Store):
    names = [
        '"',
        "';drop table x;--",
        "../é",
        "*",
        "\\",
        "_lsn2",
        "__op",
        "a:b",
        "$x",
        "#",
        "<b>",
        " ",
        ",",
    ]
    columns = delta_columns(names)
    view = View({"id": "int", **dict.fromkeys(columns, "string")})
    row = (1, *(f"value of {name}" for name in names))
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, row)]), at(100))
    sink.write(view.frame(store.spark, [(UPSERT, 20, (2, *row[1:]))]), at(200))
    assert rows(sink) == {row, (2, *row[1:])}


def test_a_column_may_be_a_key_of_any_type(store: Store):
    view = View(
        {"day": "date", "raw": "binary", "ok": "boolean", "n": "decimal(5,2)", "v": "int"},
        key=("day", "raw", "ok", "n"),
    )
    row = (dt.date(2026, 11, 18), b"\x00\xff", True, Decimal("1.00"), 1)
    sink = store.sink(view)
    sink.replace(view.frame(store.spark, [(UPSERT, 10, row)]), at(100))
    sink.write(view.frame(store.spark, [(UPSERT, 20, (*row[:-1], 2))]), at(200))
    assert rows(sink) == {(*row[:-1], 2)}
