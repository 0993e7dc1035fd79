"""The compiled encoder, where it was built: `make setup` does that when there is a C compiler.

In: a table as cdc.envelope knows it. Out: what encodes its plain rows many at a time, or None. Keeps true: there is no
difference but speed, and Python decides whatever is not plain (tests/property/test_compiled.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from cdc.build_compiled import source_digest
from cdc.changes import Column, Origin, Record, Relation
from cdc.oids import BOOL, BYTEA, ELEMENT_OF, FLOAT4, FLOAT8, TIMESTAMP, TIMESTAMPTZ
from cdc.privacy import Treatment, Treatments
from cdc.rowcode import column_encoder
from cdc.values import PASSED_THROUGH, Encode


def _built() -> Any:
    try:
        module = import_module("cdc._records")
    except ImportError:
        return None
    # After an update it may be that of an older source, until `make setup` builds it again.
    return module if source_digest() == module.SOURCE else None


records: Final[Any] = _built()
"""The compiled module, or None; mypy sees no further."""

_PASSED, _BOOLEAN, _FLOAT, _BINARY, _TIMESTAMP, _TIMESTAMPTZ, _INTEGERS, _TEXT, _CALLED = range(9)
_KINDS: Final = {
    **dict.fromkeys(PASSED_THROUGH, _PASSED),
    BOOL: _BOOLEAN,
    FLOAT4: _FLOAT,
    FLOAT8: _FLOAT,
    BYTEA: _BINARY,
    TIMESTAMP: _TIMESTAMP,
    TIMESTAMPTZ: _TIMESTAMPTZ,
}


class Envelope(NamedTuple):
    """What surrounds every row of a table: `head` up to the commit's time, then up to the transaction's id."""

    topic: str
    partitions: int
    head: str
    streamed: str
    read: str


def compiled_table(relation: Relation, envelope: Envelope, treatments: Treatments) -> Any:
    """A CompiledTable, or None."""
    if records is None:
        return None
    return records.CompiledTable(
        envelope.topic,
        envelope.partitions,
        len(relation.columns),
        _fields(relation, relation.key, treatments),
        _fields(relation, relation.columns, treatments),
        envelope.head.encode(),
        envelope.streamed.encode(),
        envelope.read.encode(),
    )


def plain_lines(table: Any, lines: list[bytes], at: int, origin: Origin, ts_ms: int) -> tuple[list[Record], int]:
    """The records of COPY's `lines[at:]` up to one that is not plain, and where that is."""
    if table is None:
        return [], at
    encoded = records.encode_lines(table, lines, at, origin.commit_lsn, origin.commit_ts_us, ts_ms)
    return encoded.records, encoded.taken


class PlainLog:
    """Whole transactions out of frames, where all tables in them have compiled encoders."""

    def __init__(self, table_of: Callable[[int], Any]) -> None:
        self._log = records.Log(table_of) if records is not None else None

    def encode(
        self, frames: Sequence[bytes], at: int, after_lsn: int, ts_ms: int, records_max: int, bytes_max: int
    ) -> Any:
        """What `frames[at:]` begins with, up to the limits; None when that is not plain or not after `after_lsn`."""
        if self._log is None or not isinstance(frames, list):
            return None
        encoded = self._log.encode(frames, at, after_lsn, ts_ms, records_max, bytes_max)
        return encoded if encoded.taken > at else None

    def forget(self) -> None:
        """The log said something else: ask for every table again."""
        if self._log is not None:
            self._log.forget()


_Field = tuple[int, bytes, int, Encode | None]


def _fields(relation: Relation, columns: Sequence[Column], treatments: Treatments) -> list[_Field]:
    wanted = {column.name for column in columns}
    fields: list[_Field] = []
    for number, column in enumerate(relation.columns):
        kind = _kind(column, treatments.get(column.name)) if column.name in wanted else None
        if kind is not None:
            fields.append((number, f"{encode_basestring(column.name)}:".encode(), *kind))
    return fields


def _kind(column: Column, treatment: Treatment | None) -> tuple[int, Encode | None] | None:
    """How the compiled module encodes a column; None for one that is not published."""
    encode = column_encoder(column, treatment)
    if encode is None:
        return None
    if treatment is not None:
        return _CALLED, encode
    element = ELEMENT_OF.get(column.base_oid)
    if element is not None:
        return (_INTEGERS, None) if element in PASSED_THROUGH else (_CALLED, encode)
    return _KINDS.get(column.base_oid, _TEXT), None
