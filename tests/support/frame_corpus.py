"""The corpus: what real servers sent for one scenario, in tests/corpus/pgoutput/<major>-<mode>.jsonl.gz.

First line: what the tables held at the end, as Postgres prints it. Then one line per frame: its bytes, and what it
was decoded to when it was recorded (tests/support/record_corpus.py).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from cdc.changes import UNCHANGED
from cdc.frames import WalData, decode_frame
from cdc.pgoutput import decode
from cdc.pgoutput_streams import (
    STREAM_ABORT,
    STREAM_COMMIT,
    STREAM_START,
    STREAM_STOP,
    StreamStart,
    decode_stream,
    without_xid,
)
from cdc.pgoutput_streams import StreamStop as Stop

FOLDER = Path(__file__).parents[1] / "corpus" / "pgoutput"
_FRAMING = (STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT)
_IN_PIECES = frozenset(b"IUDTRYM")


@dataclass(frozen=True)
class Recording:
    """One file."""

    name: str
    tables: dict[str, list[list[str | None]]]
    frames: list[tuple[bytes, Any]]

    @property
    def payloads(self) -> list[bytes]:
        found = (decode_frame(frame) for frame, _ in self.frames)
        return [frame.payload for frame in found if isinstance(frame, WalData)]


def recordings() -> Iterator[Recording]:
    """Every file of the corpus."""
    for path in sorted(FOLDER.glob("*.jsonl.gz")):
        head, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        rows = [json.loads(line) for line in lines]
        frames = [(base64.b64decode(row[0]), row[1]) for row in rows]
        yield Recording(path.name.removesuffix(".jsonl.gz"), json.loads(head), frames)


def write(name: str, tables: dict[str, Any], frames: list[bytes]) -> Path:
    """Record: the same input gives the same file."""
    lines = [json.dumps(tables, ensure_ascii=False)]
    reader = FrameReader()
    lines += [
        json.dumps([base64.b64encode(frame).decode(), as_json(reader.read(frame))], ensure_ascii=False)
        for frame in frames
    ]
    path = FOLDER / f"{name}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))
    return path


class FrameReader:
    """Decodes frame after frame, knowing only whether it is inside a streamed piece."""

    def __init__(self) -> None:
        self._in_piece = False

    def read(self, frame: bytes) -> list[Any]:
        """The frame, and the message in it."""
        outer = decode_frame(frame)
        if not isinstance(outer, WalData):
            return [outer]
        return [WalData(outer.start_lsn, outer.end_lsn, outer.sent_us, b""), self._message(outer.payload)]

    def _message(self, payload: bytes) -> Any:
        if payload[:1] and payload[0] in _FRAMING:
            message = decode_stream(payload)
            if isinstance(message, StreamStart | Stop):
                self._in_piece = isinstance(message, StreamStart)
            return message
        if self._in_piece and payload[:1] and payload[0] in _IN_PIECES:
            return [int.from_bytes(payload[1:5]), decode(without_xid(payload))]
        return decode(payload)


def as_json(value: Any) -> Any:
    """A message as JSON: its kind and its fields; what the log left out is `{}`."""
    if value is UNCHANGED:
        return {}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *(as_json(getattr(value, field.name)) for field in fields(value))]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [type(value).__name__, *map(as_json, value)]
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value
