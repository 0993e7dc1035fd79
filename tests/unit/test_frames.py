"""Replication frames: the bytes of the protocol's documentation, both ways."""

from __future__ import annotations

import pytest

from cdc.errors import ProtocolError
from cdc.frames import POSTGRES_EPOCH_US, Keepalive, WalData, decode_frame, encode_status
from tests.support import frames


def test_wal_data():
    data = frames.wal_data(b"payload", 0x16B3748, 0x16B3800, POSTGRES_EPOCH_US + 5)
    assert decode_frame(data) == WalData(0x16B3748, 0x16B3800, 946_684_800_000_005, b"payload")


@pytest.mark.parametrize("reply_requested", [True, False])
def test_keepalive(reply_requested):
    data = frames.keepalive(0x16B3748, POSTGRES_EPOCH_US + 5, reply_requested=reply_requested)
    assert decode_frame(data) == Keepalive(0x16B3748, POSTGRES_EPOCH_US + 5, reply_requested)


@pytest.mark.parametrize(
    "data",
    [b"", b"w", b"w" + bytes(23), b"k" + bytes(16), b"k" + bytes(18), b"s" + bytes(40)],
    ids=["empty", "w only", "w short", "k short", "k long", "unknown"],
)
def test_anything_else_is_a_protocol_error(data):
    with pytest.raises(ProtocolError):
        decode_frame(data)


def test_status_update():
    status = encode_status(
        written_lsn=3, flushed_lsn=2, applied_lsn=1, now_us=POSTGRES_EPOCH_US + 4, reply_requested=True
    )
    numbers = [int.from_bytes(status[at : at + 8], "big") for at in (1, 9, 17, 25)]
    assert (status[:1], numbers, status[33:]) == (b"r", [3, 2, 1, 4], b"\x01")


def test_a_status_that_confirms_more_than_was_received_is_a_bug():
    with pytest.raises(AssertionError):
        encode_status(written_lsn=1, flushed_lsn=2, applied_lsn=1, now_us=0)
