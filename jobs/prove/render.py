"""Native values, as sinks give them back, as the text that Postgres' output functions print (COPY, not `::text`).

In: a column's type and a value. Out: the text under the session settings of FORMATS.md, "As printed". A value whose
Python type the column cannot have, or a text where there is a Python value for it, becomes a text with NUL in it, which
Postgres never prints: always a difference.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from jobs.float_text import float4_text, float8_text, infinity

Renderer = Callable[[Any], str | None]

BOOL, BYTEA, INT8, INT2, INT4, OID = 16, 17, 20, 21, 23, 26
FLOAT4, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 700, 701, 1082, 1114, 1184, 1700
_NUMERIC_HEADER: Final = 4  # a numeric's modifier is ((precision << 16) | scale) + 4, scale in 11 bits
_SCALE_BITS: Final = 0x7FF
_DECIMAL_DIGITS_MAX: Final = 38
"""Delta keeps a numeric of so many digits as a decimal, others as text (jobs.typemap)."""
_SCALE_SIGN: Final = 1024
_MISFIT: Final = "\0"


def renderer(type_oid: int, type_mod: int) -> Renderer:
    """How values of the type are printed; types that sinks keep as text pass through."""
    render = _numeric(type_mod) if type_oid == NUMERIC else _RENDERERS.get(type_oid, _text)
    return lambda value: None if value is None else render(value)


def _misfit(value: Any) -> str:
    return f"{_MISFIT}{type(value).__name__}{_MISFIT}{value!r}"


def shown(text: str | None) -> str | None:
    """A rendered value for people; what is of a wrong type with its type."""
    if text is None or not text.startswith(_MISFIT):
        return text
    kind, value = text[1:].split(_MISFIT, 1)
    return f"{value} ({kind})"


def _bool(value: Any) -> str:
    return ("t" if value else "f") if isinstance(value, bool) else _misfit(value)


def _integer(value: Any) -> str:
    return str(value) if type(value) is int else _misfit(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _misfit(value)


def _bytes(value: Any) -> str:
    return "\\x" + bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else _misfit(value)


def _date(value: Any) -> str:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    return _text_beyond(dt.date.fromisoformat, value)


def _timestamp(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return _moment(value)
    return _text_beyond(dt.datetime.fromisoformat, value)


def _timestamptz(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return _moment(value.astimezone(dt.UTC).replace(tzinfo=None)) + "+00"
    return _text_beyond(dt.datetime.fromisoformat, value)


def _text_beyond(parse: Callable[[str], object], value: Any) -> str:
    """A text, but only of what Python has no value for, such as the year 10000: else a store has another type."""
    try:
        parse(value)
    except (ValueError, TypeError):
        return _text(value)
    return _misfit(value)


def _moment(value: dt.datetime) -> str:
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


def _numeric(type_mod: int) -> Callable[[Any], str]:
    scale = _scale(type_mod)
    is_decimal = type_mod >= _NUMERIC_HEADER and 0 <= scale <= _precision(type_mod) <= _DECIMAL_DIGITS_MAX

    def render(value: Any) -> str:
        if not isinstance(value, Decimal):
            return _misfit(value) if is_decimal else _text(value)
        if not value.is_finite():
            return "NaN" if value.is_nan() else infinity(negative=value < 0)
        text = format(value, "f") if value else format(value.copy_abs(), "f")
        places = len(text.partition(".")[2])
        if places >= scale:
            return text
        # Zeros that a store did not keep are put back; no digit is ever dropped.
        return (text if places else text + ".") + "0" * (scale - places)

    return render


def _scale(type_mod: int) -> int:
    if type_mod < _NUMERIC_HEADER:
        return 0
    bits = (type_mod - _NUMERIC_HEADER) & _SCALE_BITS
    return (bits ^ _SCALE_SIGN) - _SCALE_SIGN


def _precision(type_mod: int) -> int:
    return (type_mod - _NUMERIC_HEADER) >> 16


def _float(print_: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda value: print_(value) if isinstance(value, float) else _misfit(value)


_RENDERERS: Final[dict[int, Callable[[Any], str]]] = {
    BOOL: _bool,
    INT2: _integer,
    INT4: _integer,
    INT8: _integer,
    OID: _integer,
    BYTEA: _bytes,
    DATE: _date,
    TIMESTAMP: _timestamp,
    TIMESTAMPTZ: _timestamptz,
    FLOAT4: _float(float4_text),
    FLOAT8: _float(float8_text),
}
