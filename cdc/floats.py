"""Floats as Postgres prints them (extra_float_digits above 0): the shortest digits that read back as the same number.

In: a Python float. Out: float8out's or float4out's text. Keeps true: the digits are Python's, since both are the
shortest; only where the exponent begins differs (src/common/d2s.c and f2s.c).
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

_SCIENTIFIC_FROM: Final = {True: 15, False: 6}
_SCIENTIFIC_BELOW: Final = -4


def print_float(value: float, *, is_double: bool) -> str:
    """The text of a double precision or, with the digits of a printed `real`, of a real."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    minus = "-" if sign else ""
    text = "".join(map(str, digits))
    magnitude = len(text) + exponent - 1
    if value == 0:
        return minus + "0"
    if _SCIENTIFIC_BELOW <= magnitude < _SCIENTIFIC_FROM[is_double]:
        return minus + _fixed(text, magnitude)
    fraction = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{fraction}e{magnitude:+03d}"


def _fixed(digits: str, magnitude: int) -> str:
    if magnitude < 0:
        return "0." + "0" * (-magnitude - 1) + digits
    whole = digits[: magnitude + 1].ljust(magnitude + 1, "0")
    rest = digits[magnitude + 1 :]
    return f"{whole}.{rest}" if rest else whole
