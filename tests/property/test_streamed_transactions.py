"""Streamed transactions: whatever is nested, rolled back, cut into pieces and spilled, what commits is what stayed."""

from __future__ import annotations

import tempfile
from contextlib import closing
from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cdc.assembler import Assembler
from tests.support import frames
from tests.support.assembling import row_changes
from tests.support.assembling import transactions as assembled

TABLES = [frames.table("t", [("id", 23), ("name", 25)]), frames.table("t", [("id", 23), ("name", 25), ("more", 25)])]
OID = TABLES[0].oid

# A row of one of the two shapes, or a savepoint: what it holds, and whether it is rolled back.
blocks = st.recursive(
    st.integers(0, 1),
    lambda inner: st.tuples(st.lists(inner, max_size=5), st.booleans()),
    max_leaves=30,
)
transactions = st.lists(blocks, max_size=8)


class Writer:
    """One transaction's messages and aborts, as Postgres would put them into its log."""

    def __init__(self, xid):
        self.xids = count(xid + 1)
        self.numbers = count(xid)
        self.shapes = {}
        self.steps = []

    def write(self, block, writer):
        """The rows that stay, and the xids of the savepoints."""
        if isinstance(block, int):
            number, table = str(next(self.numbers)), TABLES[block]
            self.steps.append((writer, table, frames.insert(OID, [number, *[None] * (len(table.columns) - 1)])))
            return [(number, len(table.columns))], []
        inside, is_rolled_back = block
        xid = next(self.xids)
        kept, xids = self.write_all(inside, xid)
        xids = [*xids, xid]
        if not is_rolled_back:
            return kept, xids
        self.steps += [(each, None, None) for each in xids]
        return [], []

    def write_all(self, blocks, writer):
        kept, xids = [], []
        for block in blocks:
            rows, inner = self.write(block, writer)
            kept += rows
            xids += inner
        return kept, xids


def payloads_of(top, steps, sizes):
    """Cut into pieces of these sizes; a table is described once, and again after every abort and every change."""
    described, is_first, left, is_open, payloads = None, True, 0, False, []
    for xid, table, payload in steps:
        if is_open and (table is None or left == 0):
            payloads.append(frames.stream_stop())
            is_open = False
        if table is None:
            if not is_first:
                payloads.append(frames.stream_abort(top, xid))
                described = None
            continue
        if not is_open:
            payloads.append(frames.stream_start(top, is_first=is_first))
            is_first, is_open, left = False, True, next(sizes)
        if described is not table:
            payloads.append(frames.in_piece(xid, frames.relation(frames.relation_message(table))))
            described = table
        payloads.append(frames.in_piece(xid, payload))
        left -= 1
    if is_open:
        payloads.append(frames.stream_stop())
    return payloads if not is_first else [frames.stream_start(top), frames.stream_stop()]


def resolve(message):
    return next(table for table in TABLES if len(table.columns) == len(message.columns))


@given(st.lists(transactions, min_size=1, max_size=3), st.data(), st.integers(1, 600))
def test_what_commits_is_what_stayed(bodies, data, spill_bytes):
    due, streams = {}, {}
    for top, body in zip(count(1000, 1000), bodies, strict=False):
        writer = Writer(top)
        due[top], _ = writer.write_all(body, top)
        sizes = iter(lambda: data.draw(st.integers(1, 4)), None)
        streams[top] = payloads_of(top, writer.steps, sizes)
    with (
        tempfile.TemporaryDirectory() as directory,
        closing(Assembler(resolve, spill_directory=Path(directory), spill_bytes=spill_bytes)) as assembler,
    ):
        lsns = count(100, 100)
        while streams:
            top = data.draw(st.sampled_from(sorted(streams)))
            feed_one(assembler, streams[top])
            if not streams[top]:
                del streams[top]
                (done,) = assembled(assembler, [frames.stream_commit(top, next(lsns))])
                with done:
                    found = [(change.new[0], len(change.relation.columns)) for change in row_changes(done)]
                assert found == due[top]


def feed_one(assembler, payloads):
    """One piece or abort."""
    while payloads:
        payload = payloads.pop(0)
        assert assembler.feed(payload) is None
        if payload[:1] in b"EA":
            return
