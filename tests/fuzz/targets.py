"""What is fuzzed, and the one thing that is claimed: bytes are a value or a ProtocolError, never anything else.

The first byte of an input chooses the decoder, so that one corpus serves all. Memory is bounded by the input: a result
never has more parts than bytes came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from cdc.changes import Column, Relation
from cdc.errors import ProtocolError
from cdc.frames import decode_frame
from cdc.pgoutput import decode
from cdc.pgoutput_streams import STREAM_ABORT, STREAM_COMMIT, STREAM_START, STREAM_STOP, decode_stream
from cdc.progress import Kind, Progress
from cdc.rows import KINDS, decode_row
from cdc.schema_record import SchemaRecord
from snapshot.copy_text import parse_line
from tests.fuzz import compiled
from tests.support.frame_corpus import FrameReader, recordings

_STREAM = bytes((STREAM_START, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT))


def _whole_frame(data: bytes) -> Any:
    return FrameReader().read(data)


def _row(data: bytes) -> Any:
    return decode_row(data) if data and data[0] in KINDS else None


def _stream(data: bytes) -> Any:
    return decode_stream(data) if data and data[0] in _STREAM else None


DECODERS: Final[tuple[Callable[[bytes], Any], ...]] = (
    _whole_frame,
    decode_frame,
    decode,
    _row,
    _stream,
    parse_line,
    Progress.from_bytes,
    SchemaRecord.from_value,
    compiled.change,
    compiled.line,
)


def run_one(data: bytes) -> bool:
    """Whether the bytes were accepted; anything but a value or a ProtocolError is raised."""
    if not data:
        return False
    decoder = DECODERS[data[0] % len(DECODERS)]
    try:
        result = decoder(data[1:])
    except ProtocolError:
        return False
    assert _parts(result) <= len(data) + 16, f"{decoder} made more of {len(data)} bytes than they can hold"
    return True


def _parts(value: Any) -> int:
    if isinstance(value, tuple | list):
        return 1 + sum(map(_parts, value))
    return len(value) if isinstance(value, str | bytes) else 0


def seeds() -> Iterator[bytes]:
    """The recorded frames for the decoders that take them, and a good record of each other kind."""
    seen: set[bytes] = set()
    for recording in recordings():
        for frame, _ in recording.frames:
            if (shape := frame[25:26] + bytes([min(len(frame) // 64, 255)])) not in seen:
                seen.add(shape)
                yield from (bytes([chosen]) + frame for chosen in (0, 1))
        for payload in recording.payloads:
            if (shape := payload[:1] + b"-" + bytes([min(len(payload) // 64, 255)])) not in seen:
                seen.add(shape)
                yield from (bytes([chosen]) + payload for chosen in (2, 3, 4))
    yield b"\x051\t\\N\ta\\tb\\\\\n"
    ends = {"p.public.orders": (3, 4)}
    made = Progress(2, Kind.IDLE, 5, 9, 1_700_000_000_000_000, 0, 0, ends, "7", origin_lsn=5)
    yield b"\x06" + made.to_bytes()
    columns = (Column("id", 20, -1, "bigint", 20, True, False), Column("n", 1700, 655366, "numeric(10,2)", 1700, False))
    relation = Relation(16384, "public", "orders", "d", columns)
    yield from (b"\x08" + data for data in compiled.changes())
    yield from (b"\x09" + data for data in compiled.lines())
    yield b"\x07" + SchemaRecord(5, relation, "p.public.orders", 2).value()
