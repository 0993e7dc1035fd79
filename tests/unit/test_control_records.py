"""Control records keep their meaning on the wire, and junk on the topic is a ProtocolError."""

from __future__ import annotations

import json

import pytest

from cdc.errors import ProtocolError
from jobs.control.kept import Declared, Left, Proved, Rebuilding, Stopped, Unshown
from jobs.control.records import Answer, ControlRecord, Kind, Request, State, Withdrawn, decode, encode

REQUEST = Request("a1", Kind.HOLD, 1_795_000_000_123, 15.0, "host:12", lsn=0x16B374D848, view="orders_é")


@pytest.mark.parametrize(
    "record",
    [
        REQUEST,
        Request("a2", Kind.PAUSE, 0, 0.5, ""),
        Answer("a1", State.RUNNING, 5, progress=0.25),
        Answer("a1", State.RUNNING, 5, progress=0.25, message="loading", left_s=12.5),
        Answer("a1", State.REFUSED, 5, lsn=1, message="no"),
        Answer("a1", State.DONE, 5, lsn=1, mended={"delta": (1, 2, 0)}),
        Answer("a1", State.FAILED, 5, message="it differs", code="REBUILD_DIFFERS", hint="report it"),
        Answer("a1", State.FAILED, 5, message="it differs", code="REBUILD_DIFFERS"),
        Proved("a view é", "cache", 5, 0x16B374D848, True, 10, 0, 1.5),
        Proved("v", "delta", 5, 1, False, 0, 0, 0.0, "gone"),
        Stopped("v", 5, "VIEW_FAILED", "it fails", "mend it"),
        Unshown("v", 5, "VIEW_FAILED", "it fails", "mend it"),
        Left("a view é", "search"),
        Rebuilding("v", 5, "loading", 0.5, None),
        Declared("v", "-- key: id\nSELECT id, 'é' AS e FROM orders\n"),
        Withdrawn("a1"),
    ],
)
def test_what_is_written_is_read(record: ControlRecord) -> None:
    assert decode(*encode(record)) == record


def test_the_wire_format() -> None:
    key, value = encode(REQUEST)
    assert key == b"a1"
    assert json.loads(value or b"") == {
        "v": 1,
        "type": "request",
        "kind": "hold",
        "sent_ts_ms": 1_795_000_000_123,
        "ttl_s": 15.0,
        "client": "host:12",
        "lsn": "16/B374D848",
        "view": "orders_é",
    }


def changed(**fields: object) -> bytes:
    _, value = encode(REQUEST)
    return json.dumps({**json.loads(value or b""), **fields}).encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b"{}"),
        (b"\xff", None),
        (b"a", b""),
        (b"a", b"[]"),
        (b"a", b"null"),
        (b"a", b"{}"),
        (b"a", b"\xff"),
        (b"a", b"[" * 100_000),
        (b"a", changed(v=2)),
        (b"a", changed(type="other")),
        (b"a", changed(kind="explode")),
        (b"a", changed(lsn=5)),
        (b"a", changed(lsn="x")),
        (b"a", changed(ttl_s="1")),
        (b"a", changed(ttl_s=-1)),
        (b"a", changed(ttl_s=float("nan"))),
        (b"a", changed(sent_ts_ms=True)),
        (b"a", changed(view=[])),
    ],
)
def test_junk_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(key, value)
