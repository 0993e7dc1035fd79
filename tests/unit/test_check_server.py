"""What follows from a server's and a slot's facts: the cases that no test server is in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.check import server, slot
from cdc.check.finding import Level
from cdc.check.server import ServerFacts
from cdc.check.slot import SlotFacts
from cdc.retention import Retention
from cdc.settings import Settings, Source

RIGHT = ServerFacts("17.1", "logical", False, "UTF8", "10GB", "0", 10, 10, 1, 1, 1, 1)
SETTINGS = Settings(pipeline="shop", source=Source(database="shop", tables=("public.*",)))
KEPT = Retention(lsn=9000, confirmed_lsn=8000, active=False, kept_bytes=4096, wal_status="reserved")
SLOT = SlotFacts("afterimage_shop", "pgoutput", "shop", None, None, None, KEPT)


def server_codes(facts, version=170001):
    return [found.code for found in server.findings_of(facts, version)]


def slot_codes(facts):
    return [found.code for found in slot.findings_of(facts, SETTINGS)]


def test_a_right_server():
    assert server_codes(RIGHT) == ["SERVER"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"wal_level": "replica"}, "WAL_LEVEL"),
        ({"is_standby": True}, "STANDBY_FEEDBACK"),
        ({"is_standby": True, "primary_slot": "s", "feedback": False}, "STANDBY_FEEDBACK"),
        ({"encoding": "SQL_ASCII"}, "ENCODING"),
        ({"encoding": "LATIN1"}, "ENCODING"),
        ({"wal_keep": "-1"}, "WAL_UNLIMITED"),
        ({"idle_slot_timeout": "1d"}, "SLOT_TIMEOUT"),
        ({"slots": 10}, "NO_ROOM"),
        ({"senders": 10}, "NO_ROOM"),
        ({"senders_max": 1}, "NO_ROOM"),
    ],
)
def test_each_thing_wrong_is_one_finding_with_a_remedy(change, code):
    found = list(server.findings_of(replace(RIGHT, **change), 170001))
    assert [each.code for each in found] == [code]
    assert found[0].remedy


def test_room_for_two_is_room_enough():
    assert server_codes(replace(RIGHT, slots=9, senders=9)) == ["SERVER"]
    assert server_codes(replace(RIGHT, slots=9, own_slots=0)) == ["NO_ROOM"]


def test_a_standby_decodes_from_16_on():
    standby = replace(RIGHT, is_standby=True, primary_slot="s")
    assert server_codes(standby) == ["SERVER"]
    assert server_codes(standby, 150_009) == ["STANDBY"]


def test_an_old_server():
    assert server_codes(replace(RIGHT, version="13.9"), 130009) == ["SERVER_VERSION"]


def test_slots_that_are_right():
    assert slot_codes(None) == ["SLOT"]
    assert slot_codes(SLOT) == ["SLOT"]
    assert slot_codes(replace(SLOT, active_pid=7, application="afterimage shop capture")) == ["SLOT"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"retention": replace(KEPT, reason="wal_removed")}, "SLOT_LOST"),
        ({"retention": replace(KEPT, wal_status="unreserved")}, "SLOT_AT_RISK"),
        ({"active_pid": 7, "application": "pg_recvlogical", "client": "10.0.0.1"}, "SLOT_IN_USE"),
        ({"active_pid": 7}, "SLOT_IN_USE"),
        ({"plugin": "wal2json"}, "SLOT_OTHER"),
        ({"plugin": None, "database": None}, "SLOT_OTHER"),
        ({"retention": replace(KEPT, kept_bytes=5 << 30)}, "WAL_KEPT"),
    ],
)
def test_each_thing_wrong_with_a_slot(change, code):
    assert slot_codes(replace(SLOT, **change)) == [code]


def test_a_lost_slot_says_why():
    [found] = slot.findings_of(replace(SLOT, retention=replace(KEPT, reason="rows_removed")), SETTINGS)
    assert found.level is Level.CRITICAL
    assert "rows_removed" in found.message
