"""Row messages of pgoutput (insert, update, delete), the hot path of decoding.

In: one message's bytes. Out: its parts as a plain tuple, values as text.
Keeps true: every byte was used, or it is a ProtocolError.
"""

from __future__ import annotations

import struct
from typing import Final

from cdc.changes import UNCHANGED, StreamedRow, StreamedValue
from cdc.errors import ProtocolError

INSERT: Final = ord("I")
UPDATE: Final = ord("U")
DELETE: Final = ord("D")
KINDS: Final = frozenset((INSERT, UPDATE, DELETE))

KEY_ONLY: Final = "K"
WHOLE_ROW: Final = "O"

RowParts = tuple[int, int, str | None, StreamedRow | None, StreamedRow | None]
"""(message kind, relation oid, old kind, old row, new row)."""

_TEXT: Final = ord("t")
_NULL: Final = ord("n")
_UNCHANGED: Final = ord("u")
_NEW: Final = ord("N")
_OLD_KINDS: Final = {ord("K"): KEY_ONLY, ord("O"): WHOLE_ROW}

_U16 = struct.Struct(">H").unpack_from
_U32 = struct.Struct(">I").unpack_from
_ROW_AT: Final = 6  # after the message kind, the relation's oid and the first row's kind


def decode_row(data: bytes) -> RowParts:
    """The parts of a row message; `data` begins with one of KINDS."""
    try:
        kind = data[0]
        (oid,) = _U32(data, 1)
        old_kind, old, new = None, None, None
        row_kind = data[5]
        if kind == INSERT or (kind == UPDATE and row_kind == _NEW):
            if row_kind != _NEW:
                raise ValueError(f"row kind {row_kind} in an insert")
            new, at = _values(data, _ROW_AT)
        else:
            old_kind = _OLD_KINDS[row_kind]
            old, at = _values(data, _ROW_AT)
            if kind == UPDATE:
                if data[at] != _NEW:
                    raise ValueError(f"row kind {data[at]} where the new row belongs")
                new, at = _values(data, at + 1)
        if at != len(data):
            raise ValueError(f"{len(data)} bytes, {at} announced")
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise ProtocolError(f"a pgoutput row message of {len(data)} bytes is malformed: {error}") from error
    return kind, oid, old_kind, old, new


def _values(data: bytes, at: int) -> tuple[StreamedRow, int]:
    """One row and where it ends; a last value cut short shows in that end, which the caller compares."""
    (count,) = _U16(data, at)
    at += 2
    values: list[StreamedValue] = []
    append = values.append
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + _U32(data, at + 1)[0]
            append(data[start:at].decode())
        elif kind == _NULL:
            append(None)
            at += 1
        elif kind == _UNCHANGED:
            append(UNCHANGED)
            at += 1
        else:
            raise ValueError(f"value kind {kind} is not text")
    return tuple(values), at
