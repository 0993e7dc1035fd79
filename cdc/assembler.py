"""Puts the messages of one replication stream together to transactions.

In: pgoutput messages as bytes, in the order in which they came. Out: a Transaction at each commit; its changes are
decoded when iterated, so that an open transaction costs its bytes and no more, on disk above `spill_bytes`.
Keeps true: a Transaction is whole, transactions come in commit order, and wrong order is a ProtocolError.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cdc import rows
from cdc.changes import Change, Op, Origin, Relation
from cdc.errors import OperatorError, ProtocolError
from cdc.pgoutput import (
    BEGIN,
    COMMIT,
    RELATION,
    TRUNCATE,
    Begin,
    Commit,
    RelationMessage,
    Truncate,
    decode,
    decode_begin,
    decode_commit,
)
from cdc.spool import Spool

Resolve = Callable[[RelationMessage], Relation]

_OPS: Final = {rows.INSERT: Op.CREATE, rows.UPDATE: Op.UPDATE, rows.DELETE: Op.DELETE}


class State(enum.Enum):
    """Where the stream is, in words, and the message kinds that may come there."""

    OUTSIDE = ("outside a transaction", "BRYM")
    INSIDE = ("inside a transaction", "CORYMIUDT")

    def __init__(self, words: str, kinds: str) -> None:
        self.words = words
        self.kinds = frozenset(kinds.encode())


class Transaction:
    """One committed transaction. Close it when its changes are no longer needed, or use it in a `with`."""

    __slots__ = ("_relations", "_resolved", "_spool", "end_lsn", "origin")

    def __init__(
        self,
        origin: Origin,
        end_lsn: int,
        spool: Spool,
        relations: Mapping[int, Relation],
        resolved: list[Relation],
    ) -> None:
        self.origin = origin
        self.end_lsn = end_lsn
        self._spool = spool
        self._relations = relations
        self._resolved = resolved

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
    def is_empty(self) -> bool:
        """No change in it; relation messages alone may be."""
        return self._spool.count == len(self._resolved)

    @property
    def is_spilled(self) -> bool:
        """Whether it is kept in a file."""
        return self._spool.is_spilled

    @property
    def changes(self) -> Iterator[Change]:
        """Its changes from the first on, decoded on the way; ask again to start again."""
        relations = self._relations
        resolved = iter(self._resolved)
        for payload in self._spool:
            kind = payload[0]
            if kind in _OPS:
                yield _row_change(payload, relations)
            elif kind == RELATION:
                relation = next(resolved)
                relations = {**relations, relation.oid: relation}
            else:
                yield from _truncates(payload, relations)

    def close(self) -> None:
        """Give back its memory and file."""
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Assembler:
    """One for each replication connection. `resolve` answers from the catalogue what a relation message leaves out."""

    def __init__(self, resolve: Resolve, *, spill_directory: Path, spill_bytes: int) -> None:
        self._resolve = resolve
        self._spill_directory = spill_directory
        self._spill_bytes = spill_bytes
        self._state = State.OUTSIDE
        self._relations: Mapping[int, Relation] = {}
        self._last_commit_lsn = 0
        self._begin: Begin | None = None
        self._spool: Spool | None = None
        self._relations_at_begin: Mapping[int, Relation] = {}
        self._resolved: list[Relation] = []

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; then no keepalive's position may be confirmed."""
        return self._state is State.INSIDE

    def feed(self, payload: bytes) -> Transaction | None:
        """Take the next message; the transaction, if this message committed it."""
        kind = payload[0] if payload else None
        if kind not in self._state.kinds:
            raise ProtocolError(f"pgoutput message kind {kind} cannot come {self._state.words}")
        if kind in rows.KINDS or kind == TRUNCATE:
            self._keep(payload)
        elif kind == BEGIN:
            self._open(decode_begin(payload))
        elif kind == COMMIT:
            return self._commit(decode_commit(payload))
        else:
            # Types and origins say nothing that a view needs; logical messages are not used yet.
            message = decode(payload)
            if isinstance(message, RelationMessage):
                self._define(message, payload)
        return None

    def close(self) -> None:
        """Forget the open transaction, if any."""
        if self._spool is not None:
            self._spool.close()
        self._spool, self._begin, self._state = None, None, State.OUTSIDE

    def _open(self, begin: Begin) -> None:
        if begin.final_lsn <= self._last_commit_lsn:
            raise ProtocolError("a transaction came that commits no later than the one before it")
        self._begin = begin
        self._spool = Spool(self._spill_directory, self._spill_bytes)
        self._relations_at_begin = self._relations
        self._resolved = []
        self._state = State.INSIDE

    def _keep(self, payload: bytes) -> None:
        assert self._spool is not None
        self._spool.append(payload)

    def _define(self, message: RelationMessage, payload: bytes) -> None:
        relation = self._resolve(message)
        _check_resolved(message, relation)
        # A new mapping each time: transactions keep the one that held when they began.
        self._relations = {**self._relations, message.oid: relation}
        if self.in_transaction:
            self._resolved.append(relation)
            self._keep(payload)

    def _commit(self, commit: Commit) -> Transaction:
        assert self._begin is not None
        assert self._spool is not None
        begin = self._begin
        if commit.commit_lsn != begin.final_lsn:
            raise ProtocolError("begin and commit name different commit positions")
        if commit.end_lsn <= commit.commit_lsn:
            raise ProtocolError("a commit record ends before it starts")
        origin = Origin(commit.commit_lsn, begin.xid, commit.commit_ts_us)
        transaction = Transaction(origin, commit.end_lsn, self._spool, self._relations_at_begin, self._resolved)
        self._last_commit_lsn = commit.commit_lsn
        self._spool, self._begin, self._state = None, None, State.OUTSIDE
        return transaction


def _row_change(payload: bytes, relations: Mapping[int, Relation]) -> Change:
    kind, oid, old_kind, old, new = rows.decode_row(payload)
    relation = _relation(relations, oid)
    width = len(relation.columns)
    if (new is not None and len(new) != width) or (old is not None and len(old) != width):
        raise ProtocolError(f"a row of {relation.qualified} does not have its {width} columns")
    return Change(_OPS[kind], relation, old, new, old_kind == rows.KEY_ONLY)


def _truncates(payload: bytes, relations: Mapping[int, Relation]) -> Iterator[Change]:
    message = decode(payload)
    assert isinstance(message, Truncate)
    for oid in message.oids:
        yield Change(Op.TRUNCATE, _relation(relations, oid), None, None)


def _relation(relations: Mapping[int, Relation], oid: int) -> Relation:
    relation = relations.get(oid)
    if relation is None:
        raise ProtocolError(f"a change of relation {oid} came before its description")
    return relation


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
