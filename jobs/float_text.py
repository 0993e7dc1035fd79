"""Binary floats as Postgres prints them: the shortest digits that tell a number from its neighbours.

In: a number. Out: its text. Postgres takes these digits by Ryu and writes an exponent where `%.15g` would (`%.6g` for a
real): https://www.postgresql.org/docs/current/datatype-numeric.html#DATATYPE-FLOAT
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple


class _Float(NamedTuple):
    """A binary format: the digits that always survive it, those that always tell, where its integers get gaps."""

    digits_kept: int
    digits_max: int
    gap_from: float
    smallest_normal: float


_POWER_OF_TWO: Final = 0.5  # its mantissa; the gap below such a number is half the gap above
_FLOAT4: Final = _Float(6, 9, 2.0**24, 2.0**-126)
_FLOAT8: Final = _Float(15, 17, 2.0**53, 2.0**-1022)


def float4_text(number: float) -> str:
    """As a real, of which the number is the double."""
    return _text(_narrow4(number), _FLOAT4)


def float8_text(number: float) -> str:
    """As a double precision."""
    return _text(number, _FLOAT8)


def infinity(*, negative: bool) -> str:
    """How any type prints it."""
    return "-Infinity" if negative else "Infinity"


def _text(number: float, form: _Float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return infinity(negative=number < 0)
    sign = "-" if math.copysign(1, number) < 0 else ""
    number = abs(number)
    if number == 0:
        return sign + "0"
    return sign + (_plainly(number, form) or _layout(*_shortest(number, form), form.digits_kept))


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
