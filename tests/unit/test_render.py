"""A value that does not fit its column is never printed like one that does; what stores may do to values is undone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from jobs.prove.render import BOOL, BYTEA, DATE, FLOAT4, FLOAT8, INT4, NUMERIC, TIMESTAMP, TIMESTAMPTZ, renderer, shown

TEXT = 25
NAIVE = dt.datetime.fromisoformat("2026-01-01T00:00:00")
NUMERIC_10_2 = ((10 << 16) | 2) + 4


@pytest.mark.parametrize(
    ("type_oid", "value"),
    [
        (INT4, True),
        (INT4, 5.0),
        (INT4, "5"),
        (BOOL, 1),
        (BOOL, "t"),
        (TEXT, 5),
        (TEXT, b"5"),
        (BYTEA, "\\x00"),
        (FLOAT8, True),
        (FLOAT8, Decimal(1)),
        (FLOAT8, 5),
        (FLOAT8, "NaN"),
        (NUMERIC, 5),
        (NUMERIC, 5.0),
        (DATE, NAIVE),
        (DATE, "2026-11-18"),
        (TIMESTAMP, "2026-11-18 10:40:13"),
        (TIMESTAMPTZ, "2026-11-18 10:40:13+00"),
        (TIMESTAMP, dt.date(2026, 1, 1)),
        (TIMESTAMP, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        (TIMESTAMPTZ, NAIVE),
    ],
)
def test_a_misfit_is_told_apart_from_every_text_of_postgres(type_oid: int, value: Any) -> None:
    assert "\0" in (renderer(type_oid, -1)(value) or "")


@pytest.mark.parametrize(
    ("type_oid", "type_mod", "value", "text"),
    [
        (NUMERIC, NUMERIC_10_2, Decimal("5"), "5.00"),
        (NUMERIC, NUMERIC_10_2, Decimal("5E+1"), "50.00"),
        (NUMERIC, NUMERIC_10_2, Decimal("5.001"), "5.001"),
        (NUMERIC, NUMERIC_10_2, Decimal("-0.00"), "0.00"),
        (NUMERIC, -1, Decimal("1E-7"), "0.0000001"),
        (NUMERIC, -1, "NaN", "NaN"),
        (FLOAT4, -1, 0.1, "0.1"),
        (FLOAT4, -1, 1e300, "Infinity"),
        (TIMESTAMP, -1, "infinity", "infinity"),
        (DATE, -1, "0044-03-15 BC", "0044-03-15 BC"),
        (BYTEA, -1, memoryview(b"\x00\xff"), "\\x00ff"),
        (TEXT, -1, None, None),
    ],
)
def test_what_a_store_may_do_to_a_value_is_undone(type_oid: int, type_mod: int, value: Any, text: str | None) -> None:
    assert renderer(type_oid, type_mod)(value) == text


def test_a_decimal_kept_as_text_is_of_another_type() -> None:
    assert shown(renderer(NUMERIC, NUMERIC_10_2)("5.00")) == "'5.00' (str)"
    assert shown(renderer(NUMERIC, ((39 << 16) | 2) + 4)("5.00")) == "5.00"
    assert shown(None) is None
