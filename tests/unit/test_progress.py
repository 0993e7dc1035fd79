"""Progress records by example: the documented form, other versions, nesting without end."""

from __future__ import annotations

import json

import pytest

from cdc.errors import ProtocolError
from cdc.progress import Kind, Part, Progress

PROGRESS = Progress(42, Kind.STREAM, 0x1A, 0x2B, 5, 17, 99, {"shop.public.orders": (120, 98)}, "7000", origin_lsn=0x10)


def test_the_documented_form():
    assert json.loads(PROGRESS.to_bytes()) == {
        "v": 1,
        "seq": 42,
        "kind": "stream",
        "prev_lsn": "0/1A",
        "lsn": "0/2B",
        "source_ts_us": 5,
        "records": 17,
        "checksum": 99,
        "ends": {"shop.public.orders": [120, 98]},
        "system_id": "7000",
        "snapshot": None,
        "origin_lsn": "0/10",
    }


def test_a_part_says_what_it_is_a_part_of():
    part = Progress(43, Kind.PART, 0x2B, 0x2B, 5, 17, 99, {}, "7000", part=Part(0x30, 12, 3))

    assert json.loads(part.to_bytes())["part"] == {"commit_lsn": "0/30", "changes": 12, "messages": 3}
    assert Progress.from_bytes(part.to_bytes()) == part


def test_a_part_from_before_messages_were_published():
    assert Part.of({"commit_lsn": "0/30", "changes": 12}) == Part(0x30, 12, 0)


def test_what_follows_a_recovery_says_so():
    recovered = Progress(44, Kind.IDLE, 0x40, 0x40, 5, 0, 0, {}, "7000", recovered_lsn=0x40)

    assert json.loads(recovered.to_bytes())["recovered_lsn"] == "0/40"
    assert Progress.from_bytes(recovered.to_bytes()) == recovered


@pytest.mark.parametrize(
    ("kind", "boundary"),
    [
        (Kind.SNAPSHOT, False),
        (Kind.STREAM, True),
        (Kind.IDLE, True),
        (Kind.PART, False),
        (Kind.RECOVER, False),
    ],
)
def test_views_stop_only_between_transactions(kind: Kind, boundary: bool):
    assert Progress(1, kind, 0, 0, 0, 0, 0, {}, "7000").is_boundary is boundary


def test_a_newer_version_is_refused_by_name():
    with pytest.raises(ProtocolError, match="version 2"):
        Progress.from_bytes(b'{"v":2}')


@pytest.mark.parametrize("value", [b"[" * 100_000, PROGRESS.to_bytes().replace(b"42", b"Infinity")])
def test_what_python_cannot_read_is_a_protocol_error(value: bytes):
    with pytest.raises(ProtocolError):
        Progress.from_bytes(value)
