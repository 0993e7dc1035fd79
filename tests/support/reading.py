"""The ways in which a range of a topic can be read, one of them chosen."""

from __future__ import annotations

from typing import Final

import pytest

import jobs.changes

WAYS: Final = ("driver", "bulk", "spark")
"""Record by record in the driver, many at a time there, by Spark."""


def read_by(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """This way first, however large the range is."""
    if way == "bulk":
        monkeypatch.setattr(jobs.changes, "BULK_RECORDS_MIN", 0)
    else:
        monkeypatch.setattr(jobs.changes, "BULK_RECORDS_MAX", -1)
    if way == "spark":
        monkeypatch.setattr(jobs.changes, "RECORDS_MAX", -1)
