"""Floats as Postgres prints them (extra_float_digits above 0): the shortest digits that read back as the same number.

In: a Python float. Out: float8out's or float4out's text. Keeps true: Python's digits are Postgres's but for large
numbers, where Postgres takes no decimal that lies just on the border between two numbers (src/common/d2s.c).
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Final

_SCIENTIFIC_FROM: Final = {True: 15, False: 6}
_SCIENTIFIC_BELOW: Final = -4
_GAPS_FROM: Final = 2.0**53  # from here on, the border between two doubles may have few digits
_DIGITS_MAX: Final = 17


def print_float(value: float, *, is_double: bool) -> str:
    """The text of a double precision or, with the digits of a printed `real`, of a real."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    minus = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return minus + "0"
    shortest = _shortest(abs(value)) if is_double else Decimal(repr(abs(value)))
    return minus + _layout(shortest.normalize(), _SCIENTIFIC_FROM[is_double])


def _shortest(value: float) -> Decimal:
    shortest = Decimal(repr(value))
    if value < _GAPS_FROM:
        return shortest
    exact, below, above = Fraction(value), Fraction(math.nextafter(value, 0)), math.nextafter(value, math.inf)
    low = (exact + below) / 2
    high = (exact + Fraction(above)) / 2 if math.isfinite(above) else 2 * exact - low
    for digits in range(len(shortest.normalize().as_tuple().digits), _DIGITS_MAX):
        # Below a power of two the gap is narrower: the nearest decimal may be outside, and one further off inside.
        inside = [text for text in _around(value, digits) if low < Fraction(text) < high]
        if inside:
            return min(inside, key=lambda text: abs(Fraction(text) - exact))
    return Decimal(f"{value:.{_DIGITS_MAX - 1}e}")


def _around(value: float, digits: int) -> tuple[Decimal, Decimal, Decimal]:
    nearest = Decimal(f"{value:.{digits - 1}e}")
    exponent = nearest.as_tuple().exponent
    assert isinstance(exponent, int)
    step = Decimal((0, (1,), exponent))
    return nearest, nearest - step, nearest + step


def _layout(number: Decimal, scientific_from: int) -> str:
    _, numerals, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, numerals))
    magnitude = len(digits) + exponent - 1
    if not _SCIENTIFIC_BELOW <= magnitude < scientific_from:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{fraction}e{magnitude:+03d}"
    if magnitude < 0:
        return "0." + "0" * (-magnitude - 1) + digits
    whole = digits[: magnitude + 1].ljust(magnitude + 1, "0")
    rest = digits[magnitude + 1 :]
    return f"{whole}.{rest}" if rest else whole
