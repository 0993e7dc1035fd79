"""Native values, as sinks give them back, as the text that Postgres' output functions print (COPY, not `::text`).

In: a column's type and a value. Out: the text under the session settings of FORMATS.md, "As printed". A value whose
Python type the column cannot have, or a text where there is a Python value for it, becomes a text with NUL in it, which
Postgres never prints: always a difference.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

Renderer = Callable[[Any], str | None]

BOOL, BYTEA, INT8, INT2, INT4, OID = 16, 17, 20, 21, 23, 26
FLOAT4, FLOAT8, DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 700, 701, 1082, 1114, 1184, 1700
_NUMERIC_HEADER: Final = 4  # a numeric's modifier is ((precision << 16) | scale) + 4, scale in 11 bits
_SCALE_BITS: Final = 0x7FF
_DECIMAL_DIGITS_MAX: Final = 38
"""Delta keeps a numeric of so many digits as a decimal, others as text (jobs.typemap)."""
_SCALE_SIGN: Final = 1024
_MISFIT: Final = "\0"


class _Float(NamedTuple):
    """A binary format: the digits that always survive it, those that always tell, where its integers get gaps."""

    digits_kept: int
    digits_max: int
    gap_from: float
    smallest_normal: float


_POWER_OF_TWO: Final = 0.5  # its mantissa; the gap below such a number is half the gap above
_FLOAT4: Final = _Float(6, 9, 2.0**24, 2.0**-126)
_FLOAT8: Final = _Float(15, 17, 2.0**53, 2.0**-1022)


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
            return "NaN" if value.is_nan() else _infinite(value < 0)
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


def _infinite(negative: bool) -> str:
    return "-Infinity" if negative else "Infinity"


def _float(form: _Float, narrow: Callable[[float], float]) -> Callable[[Any], str]:
    def render(value: Any) -> str:
        if not isinstance(value, float):
            return _misfit(value)
        number = value
        if math.isnan(number):
            return "NaN"
        number = narrow(number)
        if math.isinf(number):
            return _infinite(number < 0)
        sign = "-" if math.copysign(1, number) < 0 else ""
        number = abs(number)
        if number == 0:
            return sign + "0"
        return sign + (_plainly(number, form) or _layout(*_shortest(number, form), form.digits_kept))

    return render


def _plainly(number: float, form: _Float) -> str | None:
    """The quick way for ordinary numbers, all those printed without an exponent but for reals' powers of two."""
    if not 1e-4 <= number < 10.0**form.digits_kept:
        return None
    if form is _FLOAT8:
        return repr(number).removesuffix(".0")
    if math.frexp(number)[0] == _POWER_OF_TWO:
        return None
    tries = (f"{number:.{digits}g}" for digits in range(form.digits_kept, form.digits_max + 1))
    return next(text for text in tries if _narrow4(float(text)) == number)


def _shortest(number: float, form: _Float) -> tuple[str, int]:
    """The digits d1d2.. and the exponent of d1.d2.. that Postgres (Ryu) prints for a positive number.

    Python's repr is the same for doubles but for large integers, where it takes a decimal that lies just on the border
    between two doubles, and Postgres does not.
    """
    if form is _FLOAT8 and number < form.gap_from:
        return _scientific(repr(number))
    low, high = _borders(number, form)
    exact = Fraction(number)
    first = 1 if number < form.smallest_normal else form.digits_kept
    for count in range(first, form.digits_max + 1):
        nearest = f"{number:.{count - 1}e}"
        inside = [text for text in _around(nearest, count) if low < Fraction(text) < high]
        if inside:
            return _scientific(min(inside, key=lambda text: abs(Fraction(text) - exact)))
    return _scientific(f"{number:.{form.digits_max - 1}e}")


def _around(nearest: str, count: int) -> tuple[str, str, str]:
    """The nearest decimal of so many digits, first, and its neighbours: below a power of two the gap is narrower."""
    exponent = int(nearest.partition("e")[2])
    step = Decimal((0, (1,), exponent - count + 1))
    middle = Decimal(nearest)
    return nearest, str(middle - step), str(middle + step)


def _borders(number: float, form: _Float) -> tuple[Fraction, Fraction]:
    """Half way to the next number of the format, below and above."""
    exact, below, above = Fraction(number), *_neighbours(number, form)
    return (exact + below) / 2, (exact + above) / 2


def _neighbours(number: float, form: _Float) -> tuple[Fraction, Fraction]:
    if form is _FLOAT8:
        below, above = math.nextafter(number, 0.0), math.nextafter(number, math.inf)
        return Fraction(below), 2 * Fraction(number) - Fraction(below) if math.isinf(above) else Fraction(above)
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    (below,) = struct.unpack("<f", struct.pack("<I", bits - 1))
    (above,) = struct.unpack("<f", struct.pack("<I", bits + 1))
    return Fraction(below), Fraction(2.0**128 if math.isinf(above) else above)


def _scientific(text: str) -> tuple[str, int]:
    sign_digits_exponent = Decimal(text).normalize().as_tuple()
    digits = "".join(map(str, sign_digits_exponent.digits))
    assert isinstance(sign_digits_exponent.exponent, int)
    return digits, sign_digits_exponent.exponent + len(digits) - 1


def _layout(digits: str, exponent: int, plain_below: int) -> str:
    """Plain between 1e-04 and the format's certain digits, else with an exponent of two digits at least."""
    if not -4 <= exponent < plain_below:
        fraction = "." + digits[1:] if len(digits) > 1 else ""
        return f"{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{whole}.{digits[exponent + 1 :]}" if len(digits) > exponent + 1 else whole


def _narrow4(number: float) -> float:
    try:
        narrowed: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:  # larger than any real: struct refuses where Postgres has an infinity
        return math.copysign(math.inf, number)
    return narrowed


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
    FLOAT4: _float(_FLOAT4, _narrow4),
    FLOAT8: _float(_FLOAT8, lambda number: number),
}
