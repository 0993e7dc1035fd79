"""What capture's log says about the slot: at each change for the worse, not at each look."""

from __future__ import annotations

import pytest
import structlog

from cdc.retention import Retention
from cdc.settings import Settings, Source
from cdc.slot_watch import Alarms

MIB = 1 << 20
SETTINGS = Settings(
    pipeline="shop",
    source=Source(database="shop", tables=("public.*",), wal_kept_warning_bytes=10 * MIB, wal_kept_max_bytes=100 * MIB),
)


def reading(kept, lsn=0, safe=None):
    return Retention(lsn=lsn, confirmed_lsn=0, active=True, kept_bytes=kept, safe_bytes=safe, wal_status="reserved")


def said(readings):
    alarms = Alarms(SETTINGS)
    with structlog.testing.capture_logs() as logs:
        for at, retention in readings:
            alarms.take(retention, at)
    return logs


def test_it_speaks_when_it_gets_worse_and_when_it_is_over():
    logs = said([(0, reading(1)), (5, reading(20 * MIB)), (10, reading(200 * MIB)), (15, reading(1))])

    assert [line.get("code") for line in logs] == ["WAL_KEPT", "SLOT_AT_RISK", None]
    assert all(line["remedy"] for line in logs[:2])
    assert logs[1]["kept_bytes"] == 200 * MIB
    assert logs[2]["log_level"] == "info"


def test_it_does_not_repeat_itself_at_each_look_but_every_ten_minutes():
    assert len(said([(at, reading(20 * MIB)) for at in range(0, 600, 5)])) == 1
    assert len(said([(at, reading(20 * MIB)) for at in range(0, 605, 5)])) == 2


def test_it_says_how_long_the_slot_lasts_at_the_rate_just_measured():
    last = said([(0, reading(90, lsn=0, safe=10)), (10, reading(95, lsn=20, safe=5)), (700, reading(99, 1400, 1))])[-1]

    assert last["safe_bytes"] == 1
    assert last["seconds_left"] == pytest.approx(0.5)
