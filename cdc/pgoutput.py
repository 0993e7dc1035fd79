"""pgoutput messages in text format; what frames the pieces of open transactions is in pgoutput_streams.

In: one message's bytes, without the xid that it has in a piece. Out: a frozen message; times are Unix microseconds,
LSNs integers.
Keeps true: whatever the bytes, the outcome is a whole message that used every byte, or a ProtocolError.
Reference: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from cdc import rows
from cdc.changes import StreamedRow
from cdc.cursor import Cursor
from cdc.errors import ProtocolError
from cdc.frames import POSTGRES_EPOCH_US

BEGIN: Final = ord("B")
COMMIT: Final = ord("C")
RELATION: Final = ord("R")
TRUNCATE: Final = ord("T")
ORIGIN: Final = ord("O")
MESSAGE: Final = ord("M")
IDENTITY_FLAG: Final = 1

_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")


class Begin(NamedTuple):
    """`final_lsn` is the LSN of the commit record's start."""

    final_lsn: int
    commit_ts_us: int
    xid: int


class Commit(NamedTuple):
    """`commit_lsn` is the start of the commit record, `end_lsn` the byte after it."""

    commit_lsn: int
    end_lsn: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction was itself replicated from there."""

    origin_lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One published column; `in_identity` says replica identity, not primary key."""

    in_identity: bool
    name: str
    type_oid: int
    type_mod: int


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """A table as it is for the changes that follow; `identity` is pg_class.relreplident."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeMessage:
    """A type that is not built in and that a following relation uses."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    oid: int
    new: StreamedRow


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row; `old_kind` is `K` when `old` holds the identity's columns only, `O` for the whole row, or None."""

    oid: int
    old_kind: str | None
    old: StreamedRow | None
    new: StreamedRow


@dataclass(frozen=True, slots=True)
class Delete:
    """A row that is gone; `old_kind` as for Update, never None."""

    oid: int
    old_kind: str
    old: StreamedRow


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables emptied by one statement."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What pg_logical_emit_message wrote; `lsn` is the byte after its record."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message = Begin | Commit | Origin | RelationMessage | TypeMessage | Insert | Update | Delete | Truncate | LogicalMessage


def decode(data: bytes) -> Message:
    """The message in one XLogData payload."""
    kind = data[0] if data else None
    if kind in rows.KINDS:
        return _row_message(rows.decode_row(data))
    if kind == BEGIN:
        return decode_begin(data)
    if kind == COMMIT:
        return decode_commit(data)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise ProtocolError(f"pgoutput message kind {kind} is unknown, or frames streamed pieces")
    try:
        cursor = Cursor(data, 1)
        message = decoder(cursor)
        cursor.finish()
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ProtocolError(f"a pgoutput message of kind {chr(data[0])} is malformed: {error}") from error
    return message


def _row_message(row: rows.RowParts) -> Insert | Update | Delete:
    kind, oid, old_kind, old, new = row
    if kind == rows.INSERT:
        assert new is not None
        return Insert(oid, new)
    if kind == rows.UPDATE:
        assert new is not None
        return Update(oid, old_kind, old, new)
    assert old_kind is not None
    assert old is not None
    return Delete(oid, old_kind, old)


def decode_begin(data: bytes) -> Begin:
    """A begin message, of which there are as many as changes when transactions are small."""
    if len(data) != _BEGIN.size:
        raise ProtocolError(f"a begin message of {len(data)} bytes is malformed")
    _, final_lsn, commit_ts, xid = _BEGIN.unpack(data)
    return Begin(final_lsn, commit_ts + POSTGRES_EPOCH_US, xid)


def decode_commit(data: bytes) -> Commit:
    """A commit message."""
    if len(data) != _COMMIT.size or data[1]:
        raise ProtocolError(f"a commit message of {len(data)} bytes is malformed or has flags, which are not in use")
    _, _, commit_lsn, end_lsn, commit_ts = _COMMIT.unpack(data)
    return Commit(commit_lsn, end_lsn, commit_ts + POSTGRES_EPOCH_US)


def _origin(cursor: Cursor) -> Origin:
    return Origin(cursor.u64(), cursor.string())


def _relation(cursor: Cursor) -> RelationMessage:
    oid = cursor.u32()
    # Postgres sends the empty text for pg_catalog.
    schema = cursor.string() or "pg_catalog"
    name = cursor.string()
    identity = chr(cursor.u8())
    if identity not in "dnfi":
        raise ValueError(f"replica identity {identity!r} is unknown")
    columns = tuple(_column(cursor) for _ in range(cursor.u16()))
    return RelationMessage(oid, schema, name, identity, columns)


def _column(cursor: Cursor) -> RelationColumn:
    flags = cursor.u8()
    return RelationColumn(bool(flags & IDENTITY_FLAG), cursor.string(), cursor.u32(), cursor.i32())


def _type(cursor: Cursor) -> TypeMessage:
    return TypeMessage(cursor.u32(), cursor.string() or "pg_catalog", cursor.string())


def _truncate(cursor: Cursor) -> Truncate:
    count, options = cursor.u32(), cursor.u8()
    if options > 3:
        raise ValueError(f"truncate options {options} are unknown")
    return Truncate(tuple(cursor.u32_many(count)), bool(options & 1), bool(options & 2))


def _logical_message(cursor: Cursor) -> LogicalMessage:
    flags = cursor.u8()
    if flags > 1:
        raise ValueError(f"message flags {flags} are unknown")
    lsn, prefix = cursor.u64(), cursor.string()
    return LogicalMessage(bool(flags), lsn, prefix, cursor.take(cursor.u32()))


_DECODERS: Final[dict[int | None, Callable[[Cursor], Message]]] = {
    ORIGIN: _origin,
    RELATION: _relation,
    ord("Y"): _type,
    TRUNCATE: _truncate,
    MESSAGE: _logical_message,
}
