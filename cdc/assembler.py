"""Puts the messages of one replication stream together to transactions, those that come in pieces before they commit
among those that come whole.

In: pgoutput messages as bytes, in the order in which they came. Out: a Transaction at each commit. Keeps true: it is
whole and without what was rolled back, transactions come in commit order, and wrong order is a ProtocolError.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

from cdc import rows
from cdc.changes import Origin, Relation
from cdc.errors import ProtocolError
from cdc.open_transaction import Described, OpenTransaction, Resolve
from cdc.pgoutput import (
    BEGIN,
    COMMIT,
    MESSAGE,
    ORIGIN,
    TRUNCATE,
    Begin,
    LogicalMessage,
    RelationMessage,
    decode,
    decode_begin,
    decode_commit,
)
from cdc.pgoutput_streams import StreamAbort, StreamCommit, StreamStart, decode_stream
from cdc.spool import SpoolStore
from cdc.transaction import Transaction, decode_message


class State(enum.Enum):
    """Where the stream is, in words, and the message kinds that may come there."""

    OUTSIDE = ("outside a transaction", "BRYMScA")
    INSIDE = ("inside a transaction", "CORYMIUDT")
    PIECE = ("inside a piece of an open transaction", "EORYMIUDT")

    def __init__(self, words: str, kinds: str) -> None:
        self.words = words
        self.kinds = frozenset(kinds.encode())


_ROWS = rows.KINDS | {TRUNCATE}
_STREAM = frozenset(b"SEcA")


class Assembler:
    """One for each replication connection. `resolve` answers from the catalogue what a relation message leaves out."""

    def __init__(self, resolve: Resolve, *, spill_directory: Path, spill_bytes: int) -> None:
        self._resolve = resolve
        self._store = SpoolStore(spill_directory, spill_bytes)
        self._state = State.OUTSIDE
        self._known: Mapping[int, Described] = {}
        self._described = 0
        self.last_commit_lsn = 0
        self._begin: Begin | None = None
        self._open: OpenTransaction | None = None
        self._streamed: dict[int, OpenTransaction] = {}

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction, or a piece of one, is just coming; then no keepalive's position is a boundary.

        Between the pieces one is: what has not committed by then commits behind it.
        """
        return self._state is not State.OUTSIDE

    def relation(self, oid: int) -> Relation | None:
        """The relation as the log last described it."""
        described = self._known.get(oid)
        return described.relation if described is not None else None

    def feed(self, payload: bytes) -> Transaction | LogicalMessage | None:
        """Take the next message; the transaction, if this message committed it, or what belongs to none."""
        kind = payload[0] if payload else None
        state = self._state
        if kind not in state.kinds:
            raise ProtocolError(f"pgoutput message kind {kind} cannot come {state.words}")
        if kind in _ROWS:
            assert self._open is not None
            self._open.spool.append(payload if state is State.INSIDE else self._open.unwrapped(payload))
        elif kind == BEGIN:
            self._start(decode_begin(payload))
        elif kind == COMMIT:
            return self._commit(payload)
        elif kind in _STREAM:
            return self._stream(payload)
        elif kind == MESSAGE:
            return self._message(payload)
        else:
            self._describe(payload)
        return None

    def close(self) -> None:
        """Forget what is open."""
        self._store.close()
        self._open, self._begin, self._state = None, None, State.OUTSIDE
        self._streamed = {}

    def _start(self, begin: Begin) -> None:
        self._require_later(begin.final_lsn)
        self._begin = begin
        self._open = OpenTransaction(self._store.open())
        self._state = State.INSIDE

    def _require_later(self, commit_lsn: int) -> None:
        if commit_lsn <= self.last_commit_lsn:
            raise ProtocolError("a transaction came that commits no later than the one before it")

    def _message(self, payload: bytes) -> LogicalMessage | None:
        if self._open is None:
            return decode_message(payload, transactional=False)
        if self._state is State.PIECE:
            self._open.keep_message(self._open.unwrapped(payload))
        else:
            self._open.spool.append(payload)
        return None

    def _describe(self, payload: bytes) -> None:
        """A relation; types and origins say nothing that a view needs."""
        in_piece = self._state is State.PIECE and payload[0] != ORIGIN
        if in_piece:
            assert self._open is not None
            payload = self._open.unwrapped(payload)
        message = decode(payload)
        if not isinstance(message, RelationMessage):
            return
        described = Described(message, self._resolve)
        self._described += 1
        described.order = self._described
        if self._open is not None:
            described = self._open.describe(payload, described)
        else:
            self._known = {**self._known, message.oid: described}
        if not in_piece:
            _ = described.relation  # the sooner the catalogue is asked, the less it can be ahead of the log

    def _commit(self, payload: bytes) -> Transaction:
        commit, begin, done = decode_commit(payload), self._begin, self._open
        assert begin is not None
        assert done is not None
        if commit.commit_lsn != begin.final_lsn:
            raise ProtocolError("begin and commit name different commit positions")
        origin = Origin(commit.commit_lsn, begin.xid, commit.commit_ts_us)
        self._begin, self._open, self._state = None, None, State.OUTSIDE
        return self._transaction(origin, commit.end_lsn, done, self._known)

    def _stream(self, payload: bytes) -> Transaction | None:
        message = decode_stream(payload)
        match message:
            case StreamStart():
                self._open = self._piece(message)
                self._state = State.PIECE
            case StreamCommit(xid, commit_lsn, end_lsn, commit_ts_us):
                self._require_later(commit_lsn)
                # Each streamed transaction describes its tables itself.
                return self._transaction(Origin(commit_lsn, xid, commit_ts_us), end_lsn, self._taken(xid), {})
            case StreamAbort():
                self._abort(message)
            case _:
                self._open, self._state = None, State.OUTSIDE
        return None

    def _piece(self, message: StreamStart) -> OpenTransaction:
        known = self._streamed.get(message.xid)
        if (known is None) is not message.is_first:
            raise ProtocolError(f"the pieces of transaction {message.xid} do not begin with its first")
        if known is None:
            known = self._streamed[message.xid] = OpenTransaction(self._store.open(), message.xid)
        return known

    def _taken(self, xid: int) -> OpenTransaction:
        done = self._streamed.pop(xid, None)
        if done is None:
            raise ProtocolError(f"transaction {xid} was committed, and no piece of it has come")
        return done

    def _abort(self, message: StreamAbort) -> None:
        aborted = self._streamed.get(message.xid)
        if aborted is None:
            return  # rolled back while its first piece was being decoded
        if message.subxid == message.xid:
            self._taken(message.xid).spool.close()
        else:
            aborted.abort(message.subxid)

    def _transaction(
        self, origin: Origin, end_lsn: int, done: OpenTransaction, known: Mapping[int, Described]
    ) -> Transaction:
        if end_lsn <= origin.commit_lsn:
            raise ProtocolError("a commit record ends before it starts")
        self.last_commit_lsn = origin.commit_lsn
        if done.latest:
            self._learn(done.latest)
        return Transaction(origin, end_lsn, done.spool, known, done.described)

    def _learn(self, latest: Mapping[int, Described]) -> None:
        """Its descriptions hold for what follows, unless newer ones came while it was open."""
        newer = {
            oid: described
            for oid, described in latest.items()
            if oid not in self._known or self._known[oid].order < described.order
        }
        # A new mapping each time: transactions keep the one that held when they began.
        self._known = {**self._known, **newer}
