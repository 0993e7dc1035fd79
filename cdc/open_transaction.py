"""One transaction while it is open: its messages in a spool, and the relations that it describes.

In: messages in order, aborts of subtransactions. Out: what a commit makes visible. Keeps true: nothing that was rolled
back stays, its descriptions of tables included; memory is that of distinct descriptions, whatever the size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cdc.changes import Relation
from cdc.errors import OperatorError, ProtocolError
from cdc.pgoutput import RelationMessage
from cdc.pgoutput_streams import without_xid
from cdc.spool import Spool
from cdc.subtransactions import Subtransactions

Resolve = Callable[[RelationMessage], Relation]

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

    __slots__ = ("_before", "_subtransactions", "_tag", "described", "latest", "spool")

    def __init__(self, spool: Spool, streamed_xid: int | None = None) -> None:
        self.spool = spool
        self.described: dict[bytes, Described] = {}
        """By the message's bytes: everything that was said, also by what was rolled back since."""
        self.latest: dict[int, Described] = {}
        """By the relation's oid: what holds at the end."""
        self._before: list[tuple[int, int, Described | None]] = []
        self._subtransactions = None if streamed_xid is None else Subtransactions(streamed_xid)
        self._tag: bytes | None = None

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

    def abort(self, subxid: int) -> None:
        """A subtransaction was rolled back."""
        assert self._subtransactions is not None
        mark = self._subtransactions.abort(subxid)
        if mark is None:
            return
        self.spool.cut(mark)
        self._tag = None
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
    identity = {column.name for column in message.columns if column.in_identity}
    if message.identity in "di" and any(column.name not in identity for column in relation.key):
        raise OperatorError(
            f"the replica identity of {relation.qualified} does not cover its primary key",
            f"ALTER TABLE {relation.qualified} REPLICA IDENTITY DEFAULT",
            code="REPLICA_IDENTITY",
        )
