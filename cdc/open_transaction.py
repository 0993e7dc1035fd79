"""One transaction while it is open: its messages in a spool, and the relations that it describes.

In: messages in order, aborts of subtransactions. Out: what a commit makes visible. Keeps true: nothing that was rolled
back stays, its descriptions of tables included; memory is that of distinct descriptions, whatever the size.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from cdc.changes import Relation
from cdc.errors import OperatorError, ProtocolError, TransientError
from cdc.pgoutput import RelationMessage
from cdc.pgoutput_streams import without_xid
from cdc.spool import Spool
from cdc.subtransactions import Subtransactions

Resolve = Callable[[RelationMessage], Relation]

UNPLACED_CODE: Final = "MESSAGE_UNPLACED"
"""Where a message belongs cannot be told from pieces; whole transactions are without what was rolled back."""

_XID_BYTES: Final = 4


class Described:
    """A relation message, and once somebody needs it the relation that the catalogue makes of it.

    Of an open transaction the catalogue shows nothing yet, so it must not be asked before the commit.
    """

    __slots__ = ("_message", "_relation", "_resolve", "order")

    def __init__(self, message: RelationMessage, resolve: Resolve) -> None:
        self._message = message
        self._resolve = resolve
        self._relation: Relation | None = None
        self.order = 0
        """When it was last said, among all that is said of any table."""

    @property
    def relation(self) -> Relation:
        """The relation as the catalogue completes it."""
        if self._relation is None:
            relation = self._resolve(self._message)
            _check_resolved(self._message, relation)
            self._relation = relation
        return self._relation


class OpenTransaction:
    """Messages of one transaction as they come; `streamed_xid` when it comes in pieces, each message with an xid."""

    __slots__ = ("_before", "_messages", "_subtransactions", "_tag", "described", "latest", "spool")

    def __init__(self, spool: Spool, streamed_xid: int | None = None) -> None:
        self.spool = spool
        self.described: dict[bytes, Described] = {}
        """By the message's bytes: everything that was said, also by what was rolled back since."""
        self.latest: dict[int, Described] = {}
        """By the relation's oid: what holds at the end."""
        self._before: list[tuple[int, int, Described | None]] = []
        self._subtransactions = None if streamed_xid is None else Subtransactions(streamed_xid)
        self._tag: bytes | None = None
        # Where each run of messages begins, and where it ends.
        self._messages = array("Q")

    def unwrapped(self, payload: bytes) -> bytes:
        """A message from a piece without its xid, which is taken note of."""
        tag = payload[1 : 1 + _XID_BYTES]
        if tag != self._tag:
            if len(tag) != _XID_BYTES:
                raise ProtocolError(f"a streamed pgoutput message of {len(payload)} bytes has no xid")
            assert self._subtransactions is not None
            self._subtransactions.enter(int.from_bytes(tag, "big"), self.spool.size_bytes)
            self._tag = tag
        return without_xid(payload)

    def describe(self, payload: bytes, described: Described) -> Described:
        """Take a relation message; one that says nothing new is dropped, for it comes after every abort."""
        known = self.described.setdefault(payload, described)
        known.order = described.order
        oid = int.from_bytes(payload[1:5], "big")
        before = self.latest.get(oid)
        if before is not known:
            self._before.append((self.spool.size_bytes, oid, before))
            self.latest[oid] = known
            self.spool.append(payload)
        return known

    def keep_message(self, payload: bytes) -> None:
        """A logical message. In a piece Postgres gives it the xid of the whole transaction, whoever wrote it."""
        begin = self.spool.size_bytes
        self.spool.append(payload)
        if self._messages and self._messages[-1] == begin:
            self._messages[-1] = self.spool.size_bytes
        else:
            self._messages.extend((begin, self.spool.size_bytes))

    def abort(self, subxid: int) -> None:
        """A subtransaction was rolled back."""
        assert self._subtransactions is not None
        mark = self._subtransactions.abort(subxid)
        if mark is not None:
            self._cut(mark)
        # Between two rows of others a message is one of theirs; at the end nobody knows.
        if self._messages and self._messages[-1] == self.spool.size_bytes:
            raise TransientError(
                "a savepoint was rolled back behind logical messages, and Postgres does not say if they were in it",
                "capture starts again by itself, without taking large transactions in pieces",
                code=UNPLACED_CODE,
            )

    def _cut(self, mark: int) -> None:
        self.spool.cut(mark)
        self._tag = None
        while self._messages and self._messages[-2] >= mark:
            del self._messages[-2:]
        while self._before and self._before[-1][0] >= mark:
            _, oid, before = self._before.pop()
            if before is None:
                del self.latest[oid]
            else:
                self.latest[oid] = before


def _check_resolved(message: RelationMessage, relation: Relation) -> None:
    """The catalogue may be ahead of the log: a row must never be read with another row's columns."""
    sent = [(column.name, column.type_oid) for column in message.columns]
    known = [(column.name, column.type_oid) for column in relation.columns]
    if relation.oid != message.oid or sent != known:
        raise OperatorError(
            f"table {relation.qualified} was altered: the log's columns are not the catalogue's",
            "take a new snapshot of this table: changes from before the ALTER do not fit its new columns",
            code="SCHEMA_CHANGED",
        )
