"""Transactions from messages: order, relations that change on the way, and everything that must not come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.assembler import Assembler
from cdc.changes import UNCHANGED, Change, Op, Origin
from cdc.errors import OperatorError, ProtocolError
from cdc.frames import POSTGRES_EPOCH_US
from cdc.pgoutput import LogicalMessage
from tests.support import frames

ACCOUNTS = frames.table("accounts")
ORDERS = frames.table("orders", [("a", 23), ("b", 23), ("note", 25)], ["a", "b"], oid=16400, identity="f")
TS = POSTGRES_EPOCH_US + 1_000_001


class Catalogue:
    """Resolves relation messages from what it was told."""

    def __init__(self, *tables):
        self.tables = {table.oid: table for table in tables}
        self.asked = []

    def __call__(self, message):
        self.asked.append(message)
        return self.tables[message.oid]


@pytest.fixture
def catalogue():
    return Catalogue(ACCOUNTS, ORDERS)


@pytest.fixture
def assembler(catalogue, tmp_path):
    return Assembler(catalogue, spill_directory=tmp_path / "spool", spill_bytes=1 << 20)


def relation(table):
    return frames.relation(frames.relation_message(table))


def feed(assembler, *payloads):
    done = [transaction for payload in payloads if (transaction := assembler.feed(payload)) is not None]
    assert len(done) == 1
    return done[0]


def test_a_transaction_has_its_changes_in_order(assembler):
    transaction = feed(
        assembler,
        frames.begin(100, 740, TS),
        frames.origin("elsewhere"),
        relation(ACCOUNTS),
        frames.insert(ACCOUNTS.oid, ["1", "a"]),
        frames.type_(1, "public", "mood"),
        relation(ORDERS),
        frames.update(ORDERS.oid, ["1", "2", UNCHANGED], ["1", "2", "x"]),
        frames.logical_message("p", b"said", 90),
        frames.update(ACCOUNTS.oid, ["2", None], ["1", None], old_is_key=True),
        frames.delete(ACCOUNTS.oid, ["2", None]),
        frames.truncate([ACCOUNTS.oid, ORDERS.oid]),
        frames.commit(100, 148, TS),
    )
    assert transaction.origin == Origin(100, 740, TS)
    assert (transaction.commit_lsn, transaction.xid, transaction.commit_ts_us) == (100, 740, TS)
    assert transaction.end_lsn == 148
    assert list(transaction.changes) == [
        Change(Op.CREATE, ACCOUNTS, None, ("1", "a")),
        Change(Op.UPDATE, ORDERS, ("1", "2", "x"), ("1", "2", UNCHANGED)),
        LogicalMessage(True, 90, "p", b"said"),
        Change(Op.UPDATE, ACCOUNTS, ("1", None), ("2", None), old_is_key=True),
        Change(Op.DELETE, ACCOUNTS, ("2", None), None, old_is_key=True),
        Change(Op.TRUNCATE, ACCOUNTS, None, None),
        Change(Op.TRUNCATE, ORDERS, None, None),
    ]
    assert list(transaction.changes) == list(transaction.changes)


def test_in_transaction_says_whether_one_is_open(assembler):
    assert not assembler.in_transaction
    assembler.feed(frames.begin(100))
    assert assembler.in_transaction
    assembler.feed(frames.commit(100))
    assert not assembler.in_transaction


def test_a_relation_stays_known_and_may_come_outside_too(assembler, catalogue):
    feed(assembler, relation(ACCOUNTS), frames.begin(100), frames.commit(100)).close()
    later = feed(assembler, frames.begin(200), frames.insert(ACCOUNTS.oid, ["1", "a"]), frames.commit(200))
    assert [change.relation for change in later.changes] == [ACCOUNTS]
    assert len(catalogue.asked) == 1


def test_each_change_has_the_relation_that_held_when_it_was_made(assembler, catalogue):
    first = feed(
        assembler,
        frames.begin(100),
        relation(ACCOUNTS),
        frames.insert(ACCOUNTS.oid, ["1", "a"]),
        frames.commit(100),
    )
    wider = frames.table("accounts", [("id", 23), ("name", 25), ("more", 25)])
    catalogue.tables[ACCOUNTS.oid] = wider
    second = feed(
        assembler,
        frames.begin(200),
        frames.insert(ACCOUNTS.oid, ["2", "b"]),
        relation(wider),
        frames.insert(ACCOUNTS.oid, ["3", "c", "d"]),
        frames.commit(200),
    )
    assert [change.relation for change in second.changes] == [ACCOUNTS, wider]
    assert [change.relation for change in first.changes] == [ACCOUNTS]


def test_a_message_outside_belongs_to_no_transaction(assembler):
    loose = frames.logical_message("p", b"loose", 90, transactional=False)
    assert feed(assembler, loose) == LogicalMessage(False, 90, "p", b"loose")
    with pytest.raises(ProtocolError):
        assembler.feed(frames.logical_message("p", b"", 90))
    with feed(assembler, frames.begin(100), loose, frames.commit(100)) as done, pytest.raises(ProtocolError):
        list(done.changes)


def test_a_transaction_of_relations_alone_has_no_changes(assembler):
    transaction = feed(assembler, frames.begin(100), relation(ACCOUNTS), frames.commit(100))
    assert list(transaction.changes) == []


def test_a_large_transaction_goes_to_disk_and_leaves_nothing_behind(catalogue, tmp_path):
    spool = tmp_path / "spool"
    assembler = Assembler(catalogue, spill_directory=spool, spill_bytes=1000)
    rows = [(str(number), "x" * (number % 300)) for number in range(500)]
    payloads = [frames.insert(ACCOUNTS.oid, row) for row in rows]
    with feed(assembler, frames.begin(100), relation(ACCOUNTS), *payloads, frames.commit(100)) as transaction:
        assert transaction.is_spilled
        assert transaction.size_bytes >= sum(map(len, payloads))
        again = transaction.changes
        assert next(again).new == rows[0]
        assert [change.new for change in transaction.changes] == rows
        assert [change.new for change in again] == rows[1:]
    assert list(spool.iterdir()) == []


def test_closing_forgets_the_open_transaction(assembler):
    assembler.feed(frames.begin(100))
    assembler.close()
    assert not assembler.in_transaction
    assert assembler.feed(frames.begin(100)) is None
    assembler.close()


OUTSIDE = [
    frames.commit(100),
    frames.origin("x"),
    frames.insert(ACCOUNTS.oid, ["1", "a"]),
    frames.update(ACCOUNTS.oid, ["1", "a"]),
    frames.delete(ACCOUNTS.oid, ["1", None]),
    frames.truncate([ACCOUNTS.oid]),
    b"",
    b"Z",
]


@pytest.mark.parametrize("payload", OUTSIDE, ids=lambda payload: payload[:1].decode() or "empty")
def test_what_cannot_come_outside_a_transaction(assembler, payload):
    with pytest.raises(ProtocolError):
        assembler.feed(payload)


@pytest.mark.parametrize("payload", [frames.begin(101), b"", b"Z"], ids=["B", "empty", "Z"])
def test_what_cannot_come_inside_a_transaction(assembler, payload):
    assembler.feed(frames.begin(100))
    with pytest.raises(ProtocolError):
        assembler.feed(payload)
    assembler.close()


@pytest.mark.parametrize(
    "commit", [frames.commit(101, 148), frames.commit(100, 100)], ids=["another commit", "no length"]
)
def test_begin_and_commit_must_agree(assembler, commit):
    assembler.feed(frames.begin(100))
    with pytest.raises(ProtocolError):
        assembler.feed(commit)


def test_transactions_come_in_commit_order(assembler):
    feed(assembler, frames.begin(100), frames.commit(100))
    with pytest.raises(ProtocolError):
        assembler.feed(frames.begin(100))


@pytest.mark.parametrize(
    "payload",
    [
        frames.insert(999, ["1", "a"]),
        frames.truncate([999]),
        frames.insert(ACCOUNTS.oid, ["1"]),
        frames.delete(ACCOUNTS.oid, ["1", "a", "b"]),
        frames.insert(ACCOUNTS.oid, ["1", "a"])[:-1],
    ],
    ids=["unknown table", "unknown truncated table", "narrow row", "wide row", "cut row"],
)
def test_rows_that_do_not_fit_their_relation(assembler, payload):
    transaction = feed(assembler, relation(ACCOUNTS), frames.begin(100), payload, frames.commit(100))
    with pytest.raises(ProtocolError):
        list(transaction.changes)


@pytest.mark.parametrize(
    "resolved",
    [
        frames.table("accounts", [("id", 23), ("renamed", 25)]),
        frames.table("accounts", [("id", 20), ("name", 25)]),
        frames.table("accounts", [("id", 23)]),
        replace(ACCOUNTS, oid=1),
    ],
    ids=["renamed", "retyped", "dropped", "another table"],
)
def test_a_catalogue_ahead_of_the_log_is_refused(assembler, catalogue, resolved):
    message = frames.relation_message(ACCOUNTS)
    catalogue.tables[ACCOUNTS.oid] = resolved
    with pytest.raises(OperatorError) as raised:
        assembler.feed(frames.relation(message))
    assert raised.value.code == "SCHEMA_CHANGED"
