"""The assembler: kept on disk or in memory, a transaction is the same; garbage is refused as such."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.assembler import Assembler
from cdc.changes import UNCHANGED
from cdc.errors import OperatorError, ProtocolError
from cdc.transaction import Transaction
from tests.support import frames
from tests.support.assembling import row_changes, transactions

NARROW = frames.table("t", [("id", 23), ("name", 25)])
WIDE = frames.table("t", [("id", 23), ("name", 25), ("more", 25)])
OID = NARROW.oid

values = st.one_of(st.none(), st.just(UNCHANGED), st.text(st.characters(codec="utf-8"), max_size=40))


@st.composite
def bodies(draw):
    """The messages of one transaction, in which the table may change between rows."""
    payloads = []
    for _ in range(draw(st.integers(1, 4))):
        table = draw(st.sampled_from([NARROW, WIDE]))
        payloads.append(frames.relation(frames.relation_message(table)))
        row = st.lists(values, min_size=len(table.columns), max_size=len(table.columns))
        for _ in range(draw(st.integers(0, 4))):
            payloads.append(
                draw(
                    st.one_of(
                        st.builds(frames.insert, st.just(OID), row),
                        st.builds(frames.update, st.just(OID), row, row),
                        st.builds(frames.delete, st.just(OID), row),
                        st.just(frames.truncate([OID])),
                    )
                )
            )
    return payloads


def resolve(message):
    return next(table for table in (NARROW, WIDE) if len(table.columns) == len(message.columns))


def assembled(payloads, spill_bytes, directory):
    assembler = Assembler(resolve, spill_directory=Path(directory), spill_bytes=spill_bytes)
    (transaction,) = transactions(assembler, [frames.begin(100), *payloads, frames.commit(100)])
    with transaction:
        return row_changes(transaction), transaction.is_spilled


@settings(max_examples=settings().max_examples // 3)
@given(bodies(), st.integers(1, 400))
def test_spilled_is_as_in_memory(body, spill_bytes):
    with tempfile.TemporaryDirectory() as directory:
        in_memory, was_spilled = assembled(body, 1 << 30, directory)
        assert not was_spilled
        assert assembled(body, spill_bytes, directory)[0] == in_memory


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [
                    frames.begin(100),
                    frames.begin(200),
                    frames.commit(100),
                    frames.commit(200),
                    frames.relation(frames.relation_message(NARROW)),
                    frames.relation(frames.relation_message(WIDE)),
                    frames.insert(OID, ["1", "a"]),
                    frames.delete(OID, ["1", None, None]),
                    frames.truncate([OID, 7]),
                    frames.logical_message("p", b""),
                ]
            ),
        ),
        max_size=12,
    )
)
def test_garbage_is_refused_and_nothing_else(payloads):
    assembler = Assembler(lambda _: NARROW, spill_directory=Path(), spill_bytes=1 << 30)
    with suppress(ProtocolError, OperatorError):
        for payload in payloads:
            transaction = assembler.feed(payload)
            if isinstance(transaction, Transaction):
                assert transaction.end_lsn > transaction.commit_lsn
                assert all(change.relation == NARROW for change in row_changes(transaction))
