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
from dataclasses import dataclass
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


def native(type_name: str, *, as_json: bool) -> Callable[[Any], Any]:
    """What turns a stored value of this Spark type, parsed JSON or else plain text, into the Python value.

    NULL stays None. What is not of the very form that is written here, or has no Python value (a year beyond 9999),
    stays as stored: whoever compares rows shall see a difference there, neither an exception nor what it might mean.
    """
    form = _FORMS["decimal" if _DECIMAL.match(type_name) else type_name]

    def back(stored: Any) -> Any:
        try:
            return form.convert(stored) if form.has(stored, as_json) else stored
        except (ValueError, TypeError, ArithmeticError):
            return stored

    return back


def check_types(types: dict[str, str]) -> None:
    """Refuse columns whose type has no text form here."""
    for name, kind in types.items():
        if kind not in _FORMS and not _DECIMAL.match(kind):
            hint = f"cast it in the view, for example CAST({name} AS text)"
            raise ConfigError(f"column {name} has the type {kind}, which search and cache cannot hold", hint)


def _timestamps(column: Any) -> Texts:
    # Through integers: what Spark calls an instant is microseconds since 1970 in UTC, whatever zone Arrow shows it in.
    micros = pc.cast(column.cast(pa.timestamp("us", column.type.tz)), pa.int64())
    printed = pc.cast(pc.cast(micros, pa.timestamp("us")), pa.string())
    trimmed = pc.replace_substring_regex(printed, r"\.?0+$", "")
    zone = "Z" if column.type.tz else ""
    return [None if text is None else text.replace(" ", "T") + zone for text in trimmed.to_pylist()]


def _float32(stored: Any) -> float:
    value: float = _FLOAT32.unpack(_FLOAT32.pack(float(stored)))[0]
    return value


def _base64(stored: str) -> bytes:
    value = base64.b64decode(stored, validate=True)
    if base64.b64encode(value).decode("ascii") != stored:
        raise ValueError("not as it is written")
    return value


@dataclass(frozen=True, slots=True)
class _Form:
    """How values of a type are written: in JSON as one of `bare`, or as text that `text` matches (in JSON `quoted`)."""

    convert: Callable[[Any], Any]
    text: re.Pattern[str]
    bare: tuple[type, ...] = ()
    quoted: re.Pattern[str] | None = None

    def has(self, stored: Any, as_json: bool) -> bool:
        """Whether the stored value is of the form; NULL is of none, and stays as it is."""
        if type(stored) is str:
            pattern = (self.quoted if self.bare else self.text) if as_json else self.text
            return pattern is not None and pattern.fullmatch(stored) is not None
        return as_json and type(stored) in self.bare


_CLOCK: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,5}[1-9])?"
_UNFIT: Final = "|".join(_UNFIT_NUMBERS.values())


def _form(convert: Callable[[Any], Any], text: str, *bare: type, quoted: str | None = None) -> _Form:
    compiled = re.compile(text, re.ASCII | re.DOTALL)
    return _Form(convert, compiled, bare, re.compile(quoted) if quoted else None)


_INTEGER: Final = _form(int, r"0|-?[1-9]\d*", int)
_NUMBER: Final = r"-?\d+(\.\d+)?(e[+-]?\d+)?|" + _UNFIT
_FORMS: Final[dict[str, _Form]] = {
    "boolean": _form(lambda stored: stored in (True, "true"), "true|false", bool),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _INTEGER),
    "float": _form(_float32, _NUMBER, int, float, quoted=_UNFIT),
    "double": _form(float, _NUMBER, int, float, quoted=_UNFIT),
    "decimal": _form(Decimal, r"-?\d+(\.\d+)?"),
    "date": _form(dt.date.fromisoformat, r"\d{4}-\d\d-\d\d"),
    "timestamp": _form(dt.datetime.fromisoformat, _CLOCK + "Z"),
    "timestamp_ntz": _form(dt.datetime.fromisoformat, _CLOCK),
    "binary": _form(_base64, ".*"),
    "string": _form(str, ".*"),
}
