"""One committed transaction: its changes, decoded only when they are asked for.

In: the spool of its messages and what was known of tables when it began. Out: Changes in order. Keeps true: each change
has the relation that held when it was made, and a row that does not fit it is a ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, Self

from cdc import rows
from cdc.changes import Change, Op, Origin, Relation
from cdc.errors import ProtocolError
from cdc.open_transaction import Described
from cdc.pgoutput import MESSAGE, RELATION, LogicalMessage, Truncate, decode
from cdc.spool import Spool

_OPS: Final = {rows.INSERT: Op.CREATE, rows.UPDATE: Op.UPDATE, rows.DELETE: Op.DELETE}

Known = Mapping[int, Described]


class Transaction:
    """Close it when its changes are no longer needed, or use it in a `with`."""

    __slots__ = ("_described", "_known", "_spool", "end_lsn", "origin")

    def __init__(
        self, origin: Origin, end_lsn: int, spool: Spool, known: Known, described: Mapping[bytes, Described]
    ) -> None:
        self.origin = origin
        self.end_lsn = end_lsn
        self._spool = spool
        self._known = known
        self._described = described

    @property
    def commit_lsn(self) -> int:
        """The LSN of the commit record's start: the first part of its changes' position."""
        return self.origin.commit_lsn

    @property
    def xid(self) -> int | None:
        """The transaction's id."""
        return self.origin.xid

    @property
    def commit_ts_us(self) -> int:
        """When it committed, in Unix microseconds."""
        return self.origin.commit_ts_us

    @property
    def size_bytes(self) -> int:
        """The bytes of its messages, a measure of the work that it brings."""
        return self._spool.size_bytes

    @property
    def is_spilled(self) -> bool:
        """Whether a part of it is on disk."""
        return self._spool.is_spilled

    @property
    def changes(self) -> Iterator[Change | LogicalMessage]:
        """Its changes and messages from the first on, decoded on the way; ask again to start again."""
        known = self._known
        for payload in self._spool:
            kind = payload[0]
            if kind in _OPS:
                yield _row_change(payload, known)
            elif kind == RELATION:
                oid = int.from_bytes(payload[1:5], "big")
                known = {**known, oid: self._described[payload]}
            elif kind == MESSAGE:
                yield decode_message(payload, transactional=True)
            else:
                yield from _truncates(payload, known)

    def close(self) -> None:
        """Give back its memory and disk."""
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def decode_message(payload: bytes, *, transactional: bool) -> LogicalMessage:
    """A logical message, which comes inside a transaction when it belongs to one, else outside."""
    message = decode(payload)
    assert isinstance(message, LogicalMessage)
    if message.transactional is not transactional:
        raise ProtocolError("a logical message came where it does not belong")
    return message


def _row_change(payload: bytes, known: Known) -> Change:
    kind, oid, old_kind, old, new = rows.decode_row(payload)
    relation = _relation(known, oid)
    width = len(relation.columns)
    if (new is not None and len(new) != width) or (old is not None and len(old) != width):
        raise ProtocolError(f"a row of {relation.qualified} does not have its {width} columns")
    return Change(_OPS[kind], relation, old, new, old_kind == rows.KEY_ONLY)


def _truncates(payload: bytes, known: Known) -> Iterator[Change]:
    message = decode(payload)
    assert isinstance(message, Truncate)
    for oid in message.oids:
        yield Change(Op.TRUNCATE, _relation(known, oid), None, None)


def _relation(known: Known, oid: int) -> Relation:
    described = known.get(oid)
    if described is None:
        raise ProtocolError(f"a change of relation {oid} came before its description")
    return described.relation
