"""Chunks of tables merged with the log: what a snapshot sees, what is remembered, what is due."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdc.backfill import Backfill, Chunk, Key, RowImage
from cdc.changes import Record
from cdc.errors import ProtocolError
from cdc.merging import Fed, Merging
from cdc.progress import Kind, Progress
from cdc.visibility import Visibility, newest
from cdc.window import Window
from snapshot.requests import SnapshotRequest, State
from snapshot.throttle import Throttle
from tests.support import frames

TABLE = frames.table()
TOPIC = "shop.public.accounts"
BACKFILL = Backfill("b", TABLE.oid, "public", "accounts", TOPIC, initial=True)
ROWS = [RowImage(key, 0, b"") for key in (b"1", b"2", b"3")]
SEES_ALL = Visibility(100, 100, frozenset())


def chunk(begin: Key | None = None, end: Key | None = None, sees: Visibility = SEES_ALL, after_lsn: int = 50) -> Chunk:
    return Chunk("b", TABLE, begin, end, ROWS, sees, after_lsn)


def changed(*keys: bytes, topic: str = TOPIC) -> list[Record]:
    return [Record(topic, 0, key, b"") for key in keys]


def watching(keys_max: int = 100) -> Window:
    window = Window(keys_max)
    window.watch({TOPIC})
    return window


def kept(window: Window, of: Chunk) -> list[bytes] | None:
    rows = window.current(of, TOPIC)
    return None if rows is None else [row.key for row in rows]


@pytest.mark.parametrize(("xid", "seen"), [(9, True), (10, False), (11, True), (12, False), (19, True), (20, False)])
def test_a_snapshot_sees_what_ended_before_it(xid: int, seen: bool):
    assert Visibility.parse("10:20:10,12").sees(xid) is seen


def test_transaction_ids_of_the_log_have_no_epoch():
    sees = Visibility.parse(f"{(5 << 32) + 10}:{(5 << 32) + 20}:")

    assert sees.sees(19)
    assert not sees.sees(20)
    assert sees.sees((1 << 32) - 3), "before the ids began anew"
    assert not Visibility.parse(f"{(5 << 32) - 9}:{(5 << 32) - 2}:").sees(3), "after they began anew"
    assert newest(3, (1 << 32) - 3) == newest((1 << 32) - 3, 3) == 3


def test_what_a_snapshot_sees_for_certain_lies_before_all_that_run():
    sees = Visibility.parse("10:20:10,12")

    assert sees.sees_until(9)
    assert not sees.sees_until(10)


@pytest.mark.parametrize("text", ["", "1:2", "a:b:", "1:2:x"])
def test_anything_else_is_no_snapshot(text: str):
    with pytest.raises(ProtocolError):
        Visibility.parse(text)


def test_of_two_snapshots_the_older_one_sees_less():
    older, newer, newest_one = (Visibility.parse(text) for text in ("10:20:10,12", "12:20:12", "12:21:12"))

    assert older.is_before(newer)
    assert newer.is_before(newest_one)
    assert not newer.is_before(newer)


def test_rows_that_an_unseen_transaction_changed_are_left_out():
    window = watching()
    window.remember(30, changed(b"2"))
    window.remember(31, changed(b"3"))

    assert kept(window, chunk(sees=Visibility(30, 40, frozenset({30})))) == [b"1", b"3"]
    assert kept(window, chunk(sees=Visibility(30, 30, frozenset()))) == [b"1"]
    assert kept(window, chunk(sees=SEES_ALL)) == [b"1", b"2", b"3"]


def test_a_truncate_that_the_chunk_does_not_see_voids_it():
    window = watching()
    window.remember(30, changed(b"{}"))

    assert kept(window, chunk(sees=Visibility(30, 30, frozenset()))) == []


def test_other_topics_are_not_remembered():
    window = watching(keys_max=0)
    window.remember(30, changed(b"1", topic="other"))

    assert kept(window, chunk(sees=Visibility(30, 30, frozenset()))) == [b"1", b"2", b"3"]


def test_beyond_the_limit_a_chunk_must_see_everything():
    window = watching(keys_max=1)
    window.remember(30, changed(b"1", b"2"))

    assert kept(window, chunk(sees=Visibility(30, 40, frozenset({30})))) is None
    assert kept(window, chunk(sees=Visibility(31, 40, frozenset()))) == [b"1", b"2", b"3"]
    window.forget_seen([Visibility(31, 40, frozenset())])
    window.remember(41, changed(b"3"))
    assert kept(window, chunk(sees=Visibility(31, 40, frozenset()))) == [b"1", b"2"]


def test_of_what_was_not_kept_the_youngest_counts():
    window = watching(keys_max=0)
    for xid in (30, 40, 35):
        window.remember(xid, changed(b"1"))

    assert kept(window, chunk(sees=Visibility(40, 50, frozenset({40})))) is None
    assert kept(window, chunk(sees=Visibility(41, 50, frozenset()))) == [b"1", b"2", b"3"]


def test_what_every_reader_sees_is_forgotten_and_not_remembered_again():
    window = watching(keys_max=1)
    window.remember(30, changed(b"1"))
    window.forget_seen([Visibility(31, 40, frozenset())])
    window.remember(35, changed(b"2"))
    window.remember(40, changed(b"3"))

    assert kept(window, chunk(sees=Visibility(31, 40, frozenset()))) == [b"1", b"2"]


def test_chunks_are_merged_in_key_order_when_the_log_has_passed_them():
    merging = Merging([BACKFILL], 100)
    first, second = chunk(None, ("5",), after_lsn=60), chunk(("5",), None)
    merging.take(Fed(chunks=[second, first]))

    assert merging.due(59, 0) is None
    due = merging.due(60, 60)
    assert due is not None
    assert due.chunk is first
    assert merging.settle(first, 3) is None
    assert merging.backfills == (replace(BACKFILL, done=("5",), rows=3),)
    due = merging.due(60, 60)
    assert due is not None
    assert due.chunk is second
    finished = merging.settle(second, 2)
    assert finished is not None
    assert not merging.backfills


def test_a_chunk_waits_where_a_view_may_stand():
    merging = Merging([replace(BACKFILL, initial=False)], 100)
    merging.take(Fed(chunks=[chunk()]))

    assert merging.due(60, 60) is None
    assert merging.due(61, 60) is not None


def test_a_chunk_that_must_be_read_again_changes_nothing():
    merging = Merging([BACKFILL], 100)
    merging.take(Fed(chunks=[chunk()]))
    due = merging.due(60, 0)
    assert due is not None
    merging.settle(due.chunk, None)

    assert merging.backfills == (BACKFILL,)
    assert merging.due(60, 0) is None
    assert not merging.is_unsaved


def test_chunks_of_a_table_that_was_given_up_are_handed_back():
    merging = Merging([replace(BACKFILL, initial=False)], 100)
    early, late = chunk(), chunk(("5",), None)
    assert merging.take(Fed(chunks=[early])) == []
    merging.give_up(BACKFILL)

    assert merging.take(Fed(chunks=[late])) == [early, late]
    assert merging.due(60, 0) is None
    assert not merging.backfills
    assert merging.is_unsaved


def test_what_is_left_is_told_from_the_rate_so_far():
    state = replace(BACKFILL, rows=250, estimated_rows=1000, started_us=5_000_000)

    assert (state.share, state.eta_s(15_000_000)) == (0.25, 30.0)
    assert (replace(state, rows=2000).share, replace(state, rows=2000).eta_s(15_000_000)) == (1.0, 0.0)
    assert (BACKFILL.share, BACKFILL.eta_s(9)) == (None, None)


@pytest.mark.parametrize("failure", [None, "because"])
def test_a_request_and_its_answer_survive_the_topic(failure: str | None):
    asked = SnapshotRequest("a1", "public", "é.x", "id > 'a'", 5, 7)
    answer = asked.answered(9, failure)
    record = answer.record("shop")

    assert (record.topic, record.key) == ("shop._snapshots", b"a1")
    assert SnapshotRequest.from_record(record.key, record.value or b"") == answer
    assert (answer.state, answer.rows, answer.message) == (State.FAILED if failure else State.DONE, 9, failure)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"v":2}', b'{"v":1,"state":"new"}'])
def test_a_malformed_request_is_refused(value: bytes):
    with pytest.raises(ProtocolError):
        SnapshotRequest.from_record(b"a", value)


@pytest.mark.parametrize(
    ("source", "is_older"),
    [
        (30, True),
        (31, False),
        (40, True),
        (Visibility(30, 40, frozenset({30})), False),
        (Visibility(40, 40, frozenset()), True),
        (Visibility(40, 41, frozenset({30})), True),
    ],
)
def test_a_chunk_of_another_shape_is_older_than_one_that_it_does_not_see(source: int | Visibility, is_older: bool):
    merging = Merging([BACKFILL], 100)
    merging.shape_came(TABLE.oid, source)

    assert merging.is_older_shape(chunk(sees=Visibility(30, 40, frozenset({30})))) is is_older


def test_a_progress_record_carries_how_far_tables_are():
    state = replace(BACKFILL, done=("é", "1"), rows=7, where="a = 'b'", estimated_rows=9, started_us=3)
    progress = Progress(1, Kind.SNAPSHOT, 0, 5, 0, 0, 0, {}, "7000", backfills=(state,))

    assert Progress.from_bytes(progress.to_bytes()) == progress


@pytest.mark.parametrize("backfills", [3, [3], [{}], {"a": 1}])
def test_a_malformed_state_is_refused(backfills: object):
    body = json.loads(Progress(1, Kind.IDLE, 0, 5, 0, 0, 0, {}, "7000").to_bytes())
    with pytest.raises(ProtocolError):
        Progress.from_bytes(json.dumps({**body, "backfills": backfills}).encode())


def test_the_throttle_spreads_rows_over_time():
    now = [100.0]
    throttle = Throttle(50, lambda: now[0])
    throttle.spend(100)
    throttle.spend(50)
    assert throttle.wait_s() == pytest.approx(3.0)
    now[0] = 104.0
    assert throttle.wait_s() == 0
    throttle.spend(50)
    assert throttle.wait_s() == pytest.approx(1.0)
    assert Throttle(None, lambda: now[0]).wait_s() == 0
