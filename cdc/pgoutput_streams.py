"""What frames the pieces of large transactions that Postgres sends before they commit (pgoutput version 2).

In: one message's bytes. Out: its numbers; times are Unix microseconds, LSNs integers.
Keeps true: whatever the bytes, the outcome is a whole message that used every byte, or a ProtocolError.
Reference: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from cdc.errors import ProtocolError
from cdc.frames import POSTGRES_EPOCH_US

STREAM_START: Final = ord("S")
STREAM_STOP: Final = ord("E")
STREAM_COMMIT: Final = ord("c")
STREAM_ABORT: Final = ord("A")

_START = struct.Struct(">cIB")
_COMMIT = struct.Struct(">cIBQQq")
_ABORT = struct.Struct(">cII")


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A piece of the open transaction `xid` follows; every message in it begins with a subtransaction's xid."""

    xid: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The piece ends."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """`commit_lsn` is the start of the commit record, `end_lsn` the byte after it."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_ts_us: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """The subtransaction was rolled back, or the whole transaction when both xids are the same."""

    xid: int
    subxid: int


StreamMessage = StreamStart | StreamStop | StreamCommit | StreamAbort


def decode_stream(data: bytes) -> StreamMessage:
    """The message; `data` begins with one of the four kinds."""
    try:
        return _decoded(data)
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"a pgoutput message of kind {chr(data[0])} is malformed: {error}") from error


def without_xid(payload: bytes) -> bytes:
    """A message from inside a piece as it would be outside one."""
    return payload[:1] + payload[5:]


def _decoded(data: bytes) -> StreamMessage:
    kind = data[0]
    if kind == STREAM_START:
        _, xid, first = _START.unpack(data)
        return StreamStart(xid, _flag(first))
    if kind == STREAM_COMMIT:
        _, xid, flags, commit_lsn, end_lsn, ts = _COMMIT.unpack(data)
        if flags:
            raise ValueError("it has flags, which are not in use")
        return StreamCommit(xid, commit_lsn, end_lsn, ts + POSTGRES_EPOCH_US)
    if kind == STREAM_ABORT:
        _, xid, subxid = _ABORT.unpack(data)
        return StreamAbort(xid, subxid)
    if len(data) != 1:
        raise ValueError(f"{len(data)} bytes")
    return StreamStop()


def _flag(value: int) -> bool:
    if value > 1:
        raise ValueError(f"flag {value}")
    return bool(value)
