"""When the WAL that a slot keeps becomes a danger, and how long the slot lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.retention import Bounds, Level, Retention, judge, seconds_left, written_per_s
from cdc.sizes import duration_text, size_text

GIB = 1 << 30
BOUNDS = Bounds(warning_bytes=GIB, max_bytes=10 * GIB)
KEPT = Retention(lsn=100 * GIB, confirmed_lsn=99 * GIB, active=True, kept_bytes=100, wal_status="reserved")


@pytest.mark.parametrize(
    ("change", "level", "code"),
    [
        ({}, Level.SAFE, ""),
        ({"kept_bytes": None, "active": None, "wal_status": None}, Level.SAFE, ""),
        ({"kept_bytes": 2 * GIB}, Level.WARNING, "WAL_KEPT"),
        ({"kept_bytes": 11 * GIB}, Level.ALARM, "SLOT_AT_RISK"),
        ({"kept_bytes": 79, "safe_bytes": 21}, Level.SAFE, ""),
        ({"kept_bytes": 81, "safe_bytes": 19}, Level.ALARM, "SLOT_AT_RISK"),
        ({"kept_bytes": 81, "safe_bytes": -5}, Level.ALARM, "SLOT_AT_RISK"),
        ({"wal_status": "unreserved"}, Level.ALARM, "SLOT_AT_RISK"),
        ({"wal_status": "lost", "kept_bytes": None, "reason": "wal_removed"}, Level.LOST, "SLOT_LOST"),
        ({"reason": "idle_timeout"}, Level.LOST, "SLOT_LOST"),
    ],
)
def test_each_danger_has_its_level_and_code(change, level, code):
    found = judge(replace(KEPT, **change), BOUNDS, "s")

    assert (found.level, found.code) == (level, code)
    assert bool(found.remedy) == bool(found.message) == (level is not Level.SAFE)


def test_postgres_own_reason_is_passed_on():
    assert "rows_removed" in judge(replace(KEPT, reason="rows_removed"), BOUNDS, "s").message


def test_how_long_a_slot_lasts():
    limited = replace(KEPT, kept_bytes=90 * 60, safe_bytes=7200)
    later = replace(limited, lsn=KEPT.lsn + 20)

    assert written_per_s(KEPT, later, 10.0) == 2.0
    assert seconds_left(limited, 2.0) == 3600
    assert "1 h" in judge(replace(limited, kept_bytes=90_000), BOUNDS, "s", 2.0).message
    assert seconds_left(KEPT, 2.0) is None
    assert seconds_left(limited, 0.0) is None
    assert seconds_left(replace(limited, safe_bytes=-3), 1.0) == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (0.4, "0 s"), (61, "1 min 1 s"), (7260, "2 h 1 min"), (90_061, "1 d 1 h")]
)
def test_durations(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(None, "?"), (1023, "1,023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes(count, text):
    assert size_text(count) == text
