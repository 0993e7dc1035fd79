"""Arrow columns of a Delta table as Python values, beyond Python's own calendar too."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from sinks.delta.log import native_values

DAY = dt.date(2026, 11, 18)


def test_days_and_moments_are_python_values():
    moment = dt.datetime(2026, 11, 18, 10, 40, 13, 500000)  # noqa: DTZ001
    assert native_values(pa.array([DAY, None])) == [DAY, None]
    assert native_values(pa.array([moment], pa.timestamp("us"))) == [moment]
    (instant,) = native_values(pa.array([moment.replace(tzinfo=dt.UTC)], pa.timestamp("us", "UTC")))
    assert instant == moment.replace(tzinfo=dt.UTC)
    assert instant.utcoffset() == dt.timedelta(0)


@pytest.mark.parametrize(
    ("days", "text"), [(2_932_897, "10000-01-01"), (3_652_425, "11970-01-01"), (2_145_042_905, "5874897-12-31")]
)
def test_a_day_without_a_python_year_is_text(days, text):
    assert native_values(pa.array([days, 0, None], pa.date32())) == [text, dt.date(1970, 1, 1), None]


def test_a_moment_without_a_python_year_is_text():
    micros = 253_402_300_800_000_000 + 3_723_000_001
    assert native_values(pa.array([micros, None], pa.timestamp("us"))) == ["10000-01-01 01:02:03.000001", None]
    assert native_values(pa.array([micros - 1], pa.timestamp("us", "UTC"))) == ["10000-01-01 01:02:03+00"]


def test_other_columns_are_as_they_are():
    assert native_values(pa.array(["x", None])) == ["x", None]
