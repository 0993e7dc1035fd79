"""Printing loses nothing: what is printed reads back as the value, and different values are printed differently."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from jobs.prove.render import FLOAT4, FLOAT8, NUMERIC, renderer

double = renderer(FLOAT8, -1)
real = renderer(FLOAT4, -1)
numeric = renderer(NUMERIC, -1)


@given(st.floats(allow_nan=False))
def test_a_double_reads_back(value: float) -> None:
    text = double(value) or ""
    assert float(text) == value
    assert text.startswith("-") == (math.copysign(1, value) < 0)


@given(st.floats(width=32, allow_nan=False))
def test_a_real_reads_back(value: float) -> None:
    text = real(value) or ""
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    assert len(text.lstrip("-").partition("e")[0].replace(".", "").strip("0")) <= 9 or math.isinf(value)


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_numeric_reads_back_without_an_exponent(value: Decimal) -> None:
    text = numeric(value) or ""
    assert Decimal(text) == value
    assert "E" not in text
