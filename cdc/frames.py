"""The frames inside a replication connection's COPY stream: what the walsender sends and what it is answered.

In: one CopyData payload. Out: WalData or Keepalive, and the bytes of a status update. Times are Unix microseconds.
Keeps true: whatever the bytes, the outcome is a frame or a ProtocolError.
Reference: https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from cdc.errors import ProtocolError

POSTGRES_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01 in Unix microseconds

_WAL_DATA: Final = ord("w")
_KEEPALIVE: Final = ord("k")
_WAL_HEADER = struct.Struct(">cQQq")
_KEEPALIVE_FRAME = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")


class WalData(NamedTuple):
    """One pgoutput message in `payload`; `start_lsn` is 0 for relation messages."""

    start_lsn: int
    end_lsn: int
    sent_us: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Keepalive:
    """The walsender is at `end_lsn`; with `reply_requested` it waits for a status update."""

    end_lsn: int
    sent_us: int
    reply_requested: bool


Frame = WalData | Keepalive


def decode_frame(data: bytes) -> Frame:
    """The frame in one CopyData payload."""
    kind = data[0] if data else None
    if kind == _WAL_DATA and len(data) >= _WAL_HEADER.size:
        _, start_lsn, end_lsn, sent = _WAL_HEADER.unpack_from(data)
        return WalData(start_lsn, end_lsn, sent + POSTGRES_EPOCH_US, data[_WAL_HEADER.size :])
    if kind == _KEEPALIVE and len(data) == _KEEPALIVE_FRAME.size:
        _, end_lsn, sent, reply = _KEEPALIVE_FRAME.unpack(data)
        return Keepalive(end_lsn, sent + POSTGRES_EPOCH_US, reply != 0)
    raise ProtocolError(f"a replication frame of kind {kind} and {len(data)} bytes is not one that Postgres sends")


def encode_status(
    *, written_lsn: int, flushed_lsn: int, applied_lsn: int, now_us: int, reply_requested: bool = False
) -> bytes:
    """A standby status update: `flushed_lsn` is what Postgres may forget, so it is what Kafka has committed."""
    assert applied_lsn <= flushed_lsn <= written_lsn, "applied after flushed, flushed after written"
    sent = now_us - POSTGRES_EPOCH_US
    return _STATUS.pack(b"r", written_lsn, flushed_lsn, applied_lsn, sent, int(reply_requested))
