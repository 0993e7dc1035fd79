"""Column values as text and back, for stores that keep JSON or strings.

In: Arrow columns as Spark hands them to executors; later, what the store gave back, and the type's name. Out: one text
a value (None for NULL), and native Python values. Keeps true: what was written reads back equal, bit for bit.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc.errors import ConfigError

Texts = list[str | None]

_DECIMAL = re.compile(r"^decimal\((\d+),(\d+)\)$")
# As Arrow prints them: what JSON has no number for, and -0, which JSON readers take for the integer 0.
_UNFIT_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_FLOATS: Final = {**_UNFIT_NUMBERS, "-0": "-0.0"}
_FLOAT32 = struct.Struct("<f")


def json_text(value: Any) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_string(text: str) -> str:
    """A text as a JSON string."""
    return encode_basestring(text)


def object_template(names: Iterable[str]) -> str:
    """A JSON object's members with these names and a `%s` for each value: what rows differ in is only the values."""
    return ",".join(json_string(name).replace("%", "%%") + ":%s" for name in names)


def plain_texts(column: Any) -> Texts:
    """A column's values as text: numbers and ISO times as printed, binary as base64, strings as they are."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return [None if value is None else "true" if value else "false" for value in column.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None if value is None else base64.b64encode(value).decode("ascii") for value in column.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        texts: Texts = column.cast(pa.string()).to_pylist()
        return [_FLOATS.get(text, text) if text else text for text in texts]
    if pa.types.is_timestamp(kind):
        return _timestamps(column)
    as_text: Texts = column.cast(pa.string()).to_pylist()
    return as_text


def json_texts(column: Any) -> list[str]:
    """A column's values as JSON: booleans and numbers bare, decimals and everything else as strings."""
    texts = plain_texts(column)
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return [text or "null" for text in texts]
    if pa.types.is_floating(kind):
        unfit = frozenset(_UNFIT_NUMBERS.values())
        return [encode_basestring(text) if text in unfit else text or "null" for text in texts]
    return ["null" if text is None else encode_basestring(text) for text in texts]


def native(type_name: str) -> Callable[[Any], Any]:
    """What turns a stored text, or a parsed JSON value, of this Spark type into the Python value; NULL stays None."""
    return _BACK["decimal" if _DECIMAL.match(type_name) else type_name]


def check_types(types: dict[str, str]) -> None:
    """Refuse columns whose type has no text form here."""
    for name, kind in types.items():
        if kind not in _BACK and not _DECIMAL.match(kind):
            hint = f"cast it in the view, for example CAST({name} AS text)"
            raise ConfigError(f"column {name} has the type {kind}, which search and cache cannot hold", hint)


def _timestamps(column: Any) -> Texts:
    # Through integers: what Spark calls an instant is microseconds since 1970 in UTC, whatever zone Arrow shows it in.
    micros = pc.cast(column.cast(pa.timestamp("us", column.type.tz)), pa.int64())
    printed = pc.cast(pc.cast(micros, pa.timestamp("us")), pa.string())
    trimmed = pc.replace_substring_regex(printed, r"\.?0+$", "")
    zone = "Z" if column.type.tz else ""
    return [None if text is None else text.replace(" ", "T") + zone for text in trimmed.to_pylist()]


def _lenient(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """NULL stays None. What has no Python value (a year beyond 9999), or is not of its type at all, stays as stored:
    whoever compares rows shall see a difference there, not an exception."""

    def back(stored: Any) -> Any:
        try:
            return None if stored is None else convert(stored)
        except (ValueError, TypeError, ArithmeticError):
            return stored

    return back


def _float32(stored: Any) -> float:
    value: float = _FLOAT32.unpack(_FLOAT32.pack(float(stored)))[0]
    return value


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "boolean": lambda stored: stored in (True, "true"),
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": _float32,
    "double": float,
    "decimal": Decimal,
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "timestamp_ntz": dt.datetime.fromisoformat,
    "binary": base64.b64decode,
    "string": str,
}
_BACK: Final = {name: _lenient(convert) for name, convert in _CONVERTERS.items()}
