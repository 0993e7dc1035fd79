"""Transactions that come in pieces before they commit: what is rolled back, what tables look like, wrong order."""

from __future__ import annotations

import pytest

from cdc.assembler import Assembler
from cdc.changes import Origin
from cdc.errors import ProtocolError, TransientError
from cdc.frames import POSTGRES_EPOCH_US
from cdc.open_transaction import UNPLACED_CODE
from cdc.subtransactions import Subtransactions
from tests.support import frames

NARROW = frames.table("accounts")
WIDE = frames.table("accounts", [("id", 23), ("name", 25), ("more", 25)])
OID = NARROW.oid


class Catalogue:
    """Knows both shapes; counts what it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, message):
        self.asked.append(message)
        return next(table for table in (NARROW, WIDE) if len(table.columns) == len(message.columns))


@pytest.fixture
def catalogue():
    return Catalogue()


@pytest.fixture
def assembler(catalogue, tmp_path):
    return Assembler(catalogue, spill_directory=tmp_path, spill_bytes=1 << 20)


def piece(top, *messages, is_first=False):
    """A piece of transaction `top`; messages are (xid, payload)."""
    inside = [frames.in_piece(xid, payload) for xid, payload in messages]
    return [frames.stream_start(top, is_first=is_first), *inside, frames.stream_stop()]


def relation(table=NARROW):
    return frames.relation(frames.relation_message(table))


def row(number):
    return frames.insert(OID, [str(number), None])


def wide_row(number):
    return frames.insert(OID, [str(number), None, "more"])


def feed(assembler, *payloads):
    return [done for payload in payloads if (done := assembler.feed(payload)) is not None]


def ids(transaction):
    with transaction:
        return [int(change.new[0]) for change in transaction.changes]


def test_pieces_are_published_at_their_commit_among_whole_transactions(assembler):
    done = feed(
        assembler,
        *piece(500, (500, relation()), (500, row(1)), (500, row(2)), is_first=True),
        frames.begin(100),
        relation(),
        row(9),
        frames.commit(100),
        *piece(500, (500, row(3))),
        frames.stream_commit(500, 200, 248, POSTGRES_EPOCH_US + 7),
        frames.begin(300),
        row(10),
        frames.commit(300),
    )
    assert [transaction.commit_lsn for transaction in done] == [100, 200, 300]
    assert (done[1].origin, done[1].end_lsn) == (Origin(200, 500, POSTGRES_EPOCH_US + 7), 248)
    assert [ids(transaction) for transaction in done] == [[9], [1, 2, 3], [10]]


def test_between_pieces_a_position_is_a_boundary_and_inside_none(assembler):
    assembler.feed(frames.stream_start(500))
    assert assembler.in_transaction
    assembler.feed(frames.stream_stop())
    assert not assembler.in_transaction


def test_savepoints_rolled_back_leave_nothing(assembler):
    (done,) = feed(
        assembler,
        *piece(500, (500, relation()), (500, row(1)), (501, row(2)), (502, row(3)), is_first=True),
        frames.stream_abort(500, 502),
        *piece(500, (501, row(4)), (503, row(5)), (504, row(6)), (503, row(7))),
        # Released, and then rolled back with the savepoint around them.
        frames.stream_abort(500, 504),
        frames.stream_abort(500, 503),
        frames.stream_abort(500, 503),
        *piece(500, (500, row(8)), (505, row(9))),
        frames.stream_abort(500, 506),
        frames.stream_commit(500, 100),
    )
    assert ids(done) == [1, 2, 4, 8, 9]


def test_a_transaction_rolled_back_is_forgotten(assembler):
    feed(assembler, *piece(500, (500, relation()), (500, row(1)), is_first=True), frames.stream_abort(500, 500))
    with pytest.raises(ProtocolError):
        assembler.feed(frames.stream_commit(500, 100))
    assert feed(assembler, frames.stream_abort(777, 777)) == []


def test_transactions_in_pieces_do_not_mix(assembler):
    done = feed(
        assembler,
        *piece(500, (500, relation()), (500, row(1)), is_first=True),
        *piece(600, (600, relation()), (601, row(2)), is_first=True),
        *piece(500, (501, row(3))),
        *piece(600, (602, row(4))),
        frames.stream_abort(600, 601),
        frames.stream_commit(600, 100),
        frames.stream_commit(500, 200),
    )
    assert [ids(transaction) for transaction in done] == [[], [1, 3]]


SAID = frames.logical_message("p", b"said", 90)


def test_messages_among_the_rows_of_pieces(assembler):
    (done,) = feed(
        assembler,
        *piece(500, (500, relation()), (500, SAID), (500, row(1)), (501, row(2)), is_first=True),
        # Behind the savepoint's first row: it goes with it, whatever xid it has.
        *piece(500, (500, SAID), (501, row(3))),
        frames.stream_abort(500, 501),
        *piece(500, (500, row(4)), (500, SAID)),
        frames.stream_commit(500, 100),
    )
    kinds = [type(change).__name__ for change in done.changes]
    assert kinds == ["LogicalMessage", "Change", "Change", "LogicalMessage"]


@pytest.mark.parametrize("rows", [[(501, row(2))], []], ids=["before its first row", "alone"])
def test_a_message_that_may_be_rolled_back_ends_the_session(assembler, rows):
    feed(assembler, *piece(500, (500, relation()), (500, row(1)), (500, SAID), *rows, is_first=True))
    with pytest.raises(TransientError) as raised:
        assembler.feed(frames.stream_abort(500, 501))
    assert raised.value.code == UNPLACED_CODE
    assembler.close()


def test_the_catalogue_is_asked_after_the_commit_and_once(assembler, catalogue):
    opening = piece(500, (500, relation()), (500, row(1)), (500, relation()), (500, row(2)), is_first=True)
    assert feed(assembler, *opening) == []
    assert catalogue.asked == []
    (done,) = feed(assembler, frames.stream_commit(500, 100))
    assert [change.relation for change in done.changes] == [NARROW, NARROW]
    assert len(catalogue.asked) == 1


def test_the_shape_of_a_transaction_rolled_back_is_forgotten(assembler):
    done = feed(
        assembler,
        frames.begin(50),
        relation(),
        row(1),
        frames.commit(50),
        *piece(500, (500, relation(WIDE)), (500, wide_row(2)), is_first=True),
        frames.stream_abort(500, 500),
        frames.begin(100),
        row(3),
        frames.commit(100),
    )
    assert [ids(transaction) for transaction in done] == [[1], [3]]


def test_the_shape_of_a_savepoint_rolled_back_is_forgotten(assembler):
    done = feed(
        assembler,
        *piece(500, (500, relation()), (500, row(1)), is_first=True),
        *piece(500, (501, relation(WIDE)), (501, wide_row(2))),
        frames.stream_abort(500, 501),
        *piece(500, (500, relation()), (500, row(3))),
        frames.stream_commit(500, 100),
        frames.begin(200),
        row(4),
        frames.commit(200),
    )
    assert [ids(transaction) for transaction in done] == [[1, 3], [4]]


def test_a_committed_shape_holds_for_what_follows(assembler):
    done = feed(
        assembler,
        frames.begin(50),
        relation(),
        row(1),
        frames.commit(50),
        *piece(500, (500, relation(WIDE)), (500, wide_row(2)), is_first=True),
        frames.stream_commit(500, 100),
        frames.begin(200),
        wide_row(3),
        frames.commit(200),
    )
    assert [ids(transaction) for transaction in done] == [[1], [2], [3]]


def test_an_older_shape_does_not_hide_a_newer_one(assembler):
    done = feed(
        assembler,
        *piece(500, (500, relation()), (500, row(1)), is_first=True),
        frames.begin(50),
        relation(WIDE),
        wide_row(2),
        frames.commit(50),
        frames.stream_commit(500, 100),
        frames.begin(200),
        wide_row(3),
        frames.commit(200),
    )
    assert [ids(transaction) for transaction in done] == [[2], [1], [3]]


START = frames.stream_start(500)
WRONG = {
    "commit without pieces": [frames.stream_commit(500, 100)],
    "second piece first": [frames.stream_start(500, is_first=False)],
    "first piece twice": [START, frames.stream_stop(), START],
    "piece in a piece": [START, frames.stream_start(501)],
    "piece in a transaction": [frames.begin(100), START],
    "transaction in a piece": [START, frames.begin(100)],
    "commit in a piece": [START, frames.stream_commit(500, 100)],
    "stop outside": [frames.stream_stop()],
    "row without xid": [START, b"I"],
    "long stop": [START, frames.stream_stop() + b"x"],
    "cut start": [START[:-1]],
    "odd flag": [START[:-1] + b"\x02"],
    "cut abort": [frames.stream_abort(500, 501)[:-1]],
    "commit behind a later one": [
        *[frames.begin(300), frames.commit(300)],
        *[START, frames.stream_stop(), frames.stream_commit(500, 200)],
    ],
}


@pytest.mark.parametrize("payloads", WRONG.values(), ids=WRONG)
def test_wrong_order_is_refused(assembler, payloads):
    with pytest.raises(ProtocolError):
        feed(assembler, *payloads)
    assembler.close()


def test_xids_wrap_around():
    subtransactions = Subtransactions(0xFFFFFFFE)
    for mark, xid in enumerate((0xFFFFFFFE, 0xFFFFFFFF, 3, 4, 0xFFFFFFFF)):
        subtransactions.enter(xid, mark)
    assert subtransactions.abort(4) == 3
    assert subtransactions.abort(3) == 2
    assert subtransactions.abort(3) is None
    assert subtransactions.abort(0xFFFFFFFF) == 1


def test_a_parent_that_writes_after_its_child_goes_with_all_of_it():
    subtransactions = Subtransactions(500)
    subtransactions.enter(502, 10)
    subtransactions.enter(501, 20)
    assert subtransactions.abort(501) == 10
