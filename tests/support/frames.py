"""Builds what a walsender sends: replication frames and pgoutput messages, byte for byte.

In: numbers, texts and rows (None is NULL, UNCHANGED a value left out). Out: bytes. Times are Unix microseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from cdc.changes import UNCHANGED, Column, Relation, StreamedValue
from cdc.frames import POSTGRES_EPOCH_US
from cdc.pgoutput import RelationColumn, RelationMessage

Values = Sequence[StreamedValue]


def wal_data(payload: bytes, start_lsn: int = 0, end_lsn: int = 0, sent_us: int = POSTGRES_EPOCH_US) -> bytes:
    return struct.pack(">cQQq", b"w", start_lsn, end_lsn, sent_us - POSTGRES_EPOCH_US) + payload


def keepalive(end_lsn: int, sent_us: int = POSTGRES_EPOCH_US, *, reply_requested: bool = False) -> bytes:
    return struct.pack(">cQqB", b"k", end_lsn, sent_us - POSTGRES_EPOCH_US, reply_requested)


def begin(final_lsn: int, xid: int = 1, commit_ts_us: int = POSTGRES_EPOCH_US) -> bytes:
    return struct.pack(">cQqI", b"B", final_lsn, commit_ts_us - POSTGRES_EPOCH_US, xid)


def commit(commit_lsn: int, end_lsn: int | None = None, commit_ts_us: int = POSTGRES_EPOCH_US) -> bytes:
    end = commit_lsn + 8 if end_lsn is None else end_lsn
    return struct.pack(">cBQQq", b"C", 0, commit_lsn, end, commit_ts_us - POSTGRES_EPOCH_US)


def stream_start(xid: int, *, is_first: bool = True) -> bytes:
    return struct.pack(">cIB", b"S", xid, is_first)


def stream_stop() -> bytes:
    return b"E"


def stream_commit(xid: int, commit_lsn: int, end_lsn: int | None = None, ts_us: int = POSTGRES_EPOCH_US) -> bytes:
    end = commit_lsn + 8 if end_lsn is None else end_lsn
    return struct.pack(">cIBQQq", b"c", xid, 0, commit_lsn, end, ts_us - POSTGRES_EPOCH_US)


def stream_abort(xid: int, subxid: int) -> bytes:
    return struct.pack(">cII", b"A", xid, subxid)


def in_piece(xid: int, payload: bytes) -> bytes:
    """A message as it is in a piece of an open transaction, brought by the subtransaction `xid`."""
    return payload[:1] + struct.pack(">I", xid) + payload[1:]


def origin(name: str, origin_lsn: int = 0) -> bytes:
    return struct.pack(">cQ", b"O", origin_lsn) + _string(name)


def type_(oid: int, schema: str, name: str) -> bytes:
    return struct.pack(">cI", b"Y", oid) + _string(schema) + _string(name)


def relation(message: RelationMessage) -> bytes:
    head = struct.pack(">cI", b"R", message.oid) + _string(message.schema) + _string(message.name)
    head += message.identity.encode() + struct.pack(">H", len(message.columns))
    return head + b"".join(
        bytes([column.in_identity]) + _string(column.name) + struct.pack(">Ii", column.type_oid, column.type_mod)
        for column in message.columns
    )


def relation_message(table: Relation) -> RelationMessage:
    """How pgoutput describes a captured table."""
    whole = table.identity == "f"
    in_identity = {column.name for column in table.columns if whole or (column.is_key and table.identity == "d")}
    columns = tuple(RelationColumn(c.name in in_identity, c.name, c.type_oid, c.type_mod) for c in table.columns)
    return RelationMessage(table.oid, table.schema, table.name, table.identity, columns)


def insert(oid: int, new: Values) -> bytes:
    return struct.pack(">cI", b"I", oid) + b"N" + row(new)


def update(oid: int, new: Values, old: Values | None = None, *, old_is_key: bool = False) -> bytes:
    head = struct.pack(">cI", b"U", oid)
    if old is not None:
        head += (b"K" if old_is_key else b"O") + row(old)
    return head + b"N" + row(new)


def delete(oid: int, old: Values, *, old_is_key: bool = True) -> bytes:
    return struct.pack(">cI", b"D", oid) + (b"K" if old_is_key else b"O") + row(old)


def truncate(oids: Sequence[int], *, cascade: bool = False, restart_identity: bool = False) -> bytes:
    return struct.pack(f">cIB{len(oids)}I", b"T", len(oids), cascade | restart_identity << 1, *oids)


def logical_message(prefix: str, content: bytes, lsn: int = 0, *, transactional: bool = True) -> bytes:
    return struct.pack(">cBQ", b"M", transactional, lsn) + _string(prefix) + struct.pack(">I", len(content)) + content


def row(values: Iterable[StreamedValue]) -> bytes:
    parts = [_value(value) for value in values]
    return struct.pack(">H", len(parts)) + b"".join(parts)


def table(
    name: str = "accounts",
    columns: Sequence[tuple[str, int]] = (("id", 23), ("name", 25)),
    key: Sequence[str] = ("id",),
    *,
    oid: int = 16384,
    schema: str = "public",
    identity: str = "d",
) -> Relation:
    """A captured table whose columns are of built-in types, given as (name, type oid)."""
    made = tuple(Column(column, type_oid, -1, str(type_oid), type_oid, column in key) for column, type_oid in columns)
    return Relation(oid, schema, name, identity, made)


def _value(value: StreamedValue) -> bytes:
    if value is None:
        return b"n"
    if value is UNCHANGED:
        return b"u"
    text = value.encode()
    return b"t" + struct.pack(">I", len(text)) + text


def _string(text: str) -> bytes:
    return text.encode() + b"\0"
