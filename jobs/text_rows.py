"""Rows as Postgres prints them, as values of the types in which a sink keeps them: what a repair writes.

In: texts, and Spark's names of types. Out: an Arrow table with the control columns, and how many rows are not in it.
Keeps true: a value is taken exactly; a row with one that its type cannot hold is left out and counted.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from sinks.protocol import AT, DELETE, LSN, OP, UPSERT

TextRow = tuple[str | None, ...]
AT_PROOF: Final = "proof"
"""Where a mended row comes from, in the place of a topic and an offset."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_BOOLEANS: Final = {"t": True, "f": False}


@dataclass(frozen=True, slots=True)
class Shape:
    """A view's columns, those of its key, and how a sink keeps them."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    types: Mapping[str, str]


def changes(shape: Shape, rows: Sequence[TextRow], gone: Sequence[TextRow], lsn: int) -> tuple[pa.Table, int]:
    """Upserts of whole rows and deletes of keys, all at `lsn`; the number of those that could not be read."""
    converters = [_converter(shape.types[name]) for name in shape.columns]
    at = [shape.columns.index(name) for name in shape.key]
    upserts = list(_converted(rows, converters))
    deletes = list(_converted(gone, [converters[place] for place in at]))
    columns = {
        name: pa.array(
            [row[place] for row in upserts] + [key[at.index(place)] if place in at else None for key in deletes],
            arrow_type(shape.types[name]),
        )
        for place, name in enumerate(shape.columns)
    }
    count = len(upserts) + len(deletes)
    columns[OP] = pa.array([UPSERT] * len(upserts) + [DELETE] * len(deletes), pa.string())
    columns[LSN] = pa.array([lsn] * count, pa.int64())
    columns[AT] = pa.array([AT_PROOF] * count, pa.string())
    return pa.table(columns), len(rows) + len(gone) - count


def is_ours(shape: Shape) -> bool:
    """Whether each column is there, in one of the types that sinks keep values in."""
    return all(_is_known(shape.types.get(name, "")) for name in shape.columns)


def keys_as_stored(shape: Shape, keys: Sequence[TextRow]) -> pa.Table | None:
    """Keys alone, in the sink's types; None where one of them is NULL or has no such value, or a type is not ours."""
    if not all(_is_known(shape.types.get(name, "")) for name in shape.key) or any(None in key for key in keys):
        return None
    kept = list(_converted(keys, [_converter(shape.types[name]) for name in shape.key]))
    if len(kept) < len(keys):
        return None
    columns = list(zip(*kept, strict=True)) if kept else [()] * len(shape.key)
    arrays = [pa.array(values, arrow_type(shape.types[name])) for name, values in zip(shape.key, columns, strict=True)]
    return pa.table(arrays, names=list(shape.key))


def ddl(shape: Shape) -> str:
    """The table's schema for Spark, which would take every Arrow timestamp for an instant."""
    kinds = {name: shape.types[name] for name in shape.columns} | {OP: "string", LSN: "bigint", AT: "string"}
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in kinds.items())


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type behind Spark's name of a type."""
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[kind][0]


def _converter(kind: str) -> Callable[[str], Any]:
    decimal = _DECIMAL.fullmatch(kind)
    return _fitting_decimal(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[kind][1]


def _is_known(kind: str) -> bool:
    return kind in _TYPES or _DECIMAL.fullmatch(kind) is not None


def _converted(rows: Iterable[TextRow], converters: Sequence[Callable[[str], Any]]) -> Iterable[tuple[Any, ...]]:
    for row in rows:
        try:
            yield tuple(None if text is None else convert(text) for text, convert in zip(row, converters, strict=True))
        except (ValueError, KeyError, InvalidOperation):
            continue


def _fitting_decimal(precision: int, scale: int) -> Callable[[str], Decimal]:
    def convert(text: str) -> Decimal:
        value = Decimal(text)
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int) or -exponent > scale or (value and value.adjusted() >= precision - scale):
            raise ValueError("not such a decimal")
        return value

    return convert


def _integer(bits: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        value = int(text)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError("out of range")
        return value

    return convert


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("not hexadecimal")
    return bytes.fromhex(text[2:])


def _text(text: str) -> str:
    if "\0" in text:
        raise ValueError("not a text of Postgres")
    return text


_TYPES: Final[dict[str, tuple[pa.DataType, Callable[[str], Any]]]] = {
    "boolean": (pa.bool_(), _BOOLEANS.__getitem__),
    "smallint": (pa.int16(), _integer(16)),
    "int": (pa.int32(), _integer(32)),
    "bigint": (pa.int64(), _integer(64)),
    "float": (pa.float32(), float),
    "double": (pa.float64(), float),
    "date": (pa.date32(), dt.date.fromisoformat),
    "timestamp_ntz": (pa.timestamp("us"), dt.datetime.fromisoformat),
    "timestamp": (pa.timestamp("us", "UTC"), dt.datetime.fromisoformat),
    "binary": (pa.binary(), _bytes),
    "string": (pa.string(), _text),
}
