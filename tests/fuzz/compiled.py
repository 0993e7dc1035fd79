"""The compiled decoder beside Python's: whatever it takes must be what Python makes of the same bytes.

In: a row message of the log, or a line of COPY. Out: the number of records. What it does not take it leaves to Python,
which is fuzzed by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from cdc import compiled, oids
from cdc.arrays import print_array
from cdc.changes import Change, Op, Origin, Record, Relation
from cdc.envelope import TableEncoder
from cdc.errors import ProtocolError
from cdc.frames import POSTGRES_EPOCH_US
from cdc.rows import KEY_ONLY, decode_row
from snapshot.copy_text import parse_line
from tests.support import frames
from tests.support.compiling import built

LSN: Final = 900
TS_MS: Final = 77
STREAMED: Final = Origin(LSN, 7, POSTGRES_EPOCH_US)
READ: Final = Origin(LSN, None, POSTGRES_EPOCH_US)
TYPES: Final = {
    oids.INT8: "-9223372036854775808",
    oids.TEXT: 'é "\\\n\x01',
    oids.BOOL: "t",
    oids.FLOAT8: "-0",
    oids.NUMERIC: "NaN",
    oids.BYTEA: "\\x00ff5c",
    oids.TIMESTAMP: "2026-11-18 10:00:00.5",
    oids.TIMESTAMPTZ: "0044-03-15 00:00:00+00 BC",
    1016: "{1,NULL,-3}",
    1009: print_array(["a", None, '"']),
}
TABLE: Final[Relation] = frames.table(columns=[(f"c{oid}", oid) for oid in TYPES], key=[f"c{oids.INT8}"])
VALUES: Final = tuple(TYPES.values())


def _encoder() -> TableEncoder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "records", built())
        return TableEncoder("shop", "db", TABLE, 3)


_ENCODER: Final = _encoder()
_LOG: Final = built().Log(lambda oid: _ENCODER.compiled if oid == TABLE.oid else None)
_OPS: Final = {ord("I"): Op.CREATE, ord("U"): Op.UPDATE, ord("D"): Op.DELETE}
_BEGIN: Final = frames.wal_data(frames.begin(LSN, 7))
_COMMIT: Final = frames.wal_data(frames.commit(LSN))


def change(data: bytes) -> int:
    """A row message between its begin and its commit."""
    taken = _LOG.encode([_BEGIN, frames.wal_data(data), _COMMIT], 0, 1, TS_MS, 100, 1 << 20)
    assert taken.taken in (0, 3), "a part of a transaction was taken"
    if not taken.records:
        return 0
    try:
        kind, _, old_kind, old, new = decode_row(data)
    except ProtocolError as error:
        return _unread(taken.records, error)
    made = Change(_OPS[kind], TABLE, old, new, old_kind == KEY_ONLY)
    return _same(taken.records, _ENCODER.change_records(made, STREAMED, 1, TS_MS))


def line(data: bytes) -> int:
    """A line of COPY."""
    records, taken = _ENCODER.plain_records([data], 0, READ, TS_MS)
    if not taken:
        return 0
    try:
        row = parse_line(data)
    except ProtocolError as error:
        return _unread(records, error)
    return _same(records, [_ENCODER.read_record(row, READ, TS_MS)])


def _same(found: list[Record], expected: list[Record]) -> int:
    assert [tuple(record) for record in found] == [tuple(record) for record in expected]
    return len(found)


def _unread(found: list[Record], error: ProtocolError) -> int:
    """Python reads the bytes of values that are not published too, and a line's before its escapes; no other reason."""
    assert isinstance(error.__cause__, UnicodeDecodeError), f"the compiled decoder took what Python refuses: {error}"
    for record in found:
        assert (record.key + (record.value or b"")).decode()
    return len(found)


def changes() -> Iterator[bytes]:
    """Messages that are taken."""
    empty = (VALUES[0], *[None] * (len(VALUES) - 1))
    yield frames.insert(TABLE.oid, VALUES)
    yield frames.insert(TABLE.oid, empty)
    yield frames.update(TABLE.oid, VALUES)
    yield frames.update(TABLE.oid, VALUES, empty)
    yield frames.update(TABLE.oid, VALUES, ("1", *empty[1:]), old_is_key=True)
    yield frames.delete(TABLE.oid, empty)
    yield frames.delete(TABLE.oid, VALUES, old_is_key=False)


def lines() -> Iterator[bytes]:
    """Lines that are taken."""
    escapes = {"\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    fields = ["".join(escapes.get(letter, letter) for letter in value) for value in VALUES]
    yield ("\t".join(fields) + "\n").encode()
    yield ("\t".join([fields[0], *["\\N"] * (len(VALUES) - 1)]) + "\n").encode()
