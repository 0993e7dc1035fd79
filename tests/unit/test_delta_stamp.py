"""Stamps in commits, and what the ledger may say about a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jobs.ledger import LedgerRow
from sinks.delta.stamp import Stamp, app_id, vouched
from sinks.protocol import Position, Unfit

OWN = Position(100, 1_000, {"t": (5, 7)})
STAMP = Stamp("orders", 3, "abc", OWN)


def ledger(version: int, lsn: int) -> LedgerRow:
    return LedgerRow("orders", version, 3, lsn, 2_000, {"t": (9, 9)})


def test_a_stamp_reads_back():
    assert Stamp.from_json(STAMP.to_json()) == STAMP


def test_a_stamp_has_the_documented_fields():
    fields = json.loads(STAMP.to_json())
    assert fields == {
        "afterimage": 1,
        "view": "orders",
        "generation": 3,
        "fingerprint": "abc",
        "lsn": "0/64",
        "source_ts_us": 1_000,
        "offsets": {"t": [5, 7]},
    }


@pytest.mark.parametrize("text", [None, "", "{", "7", "{}", "by hand", '{"afterimage":2}', '{"lsn":"0/1"}'])
def test_other_metadata_is_no_stamp(text):
    assert Stamp.from_json(text) is None


@pytest.mark.parametrize("missing", ["afterimage", "view", "generation", "fingerprint", "lsn", "offsets"])
def test_a_stamp_without_a_field_is_none(missing):
    fields = json.loads(STAMP.to_json())
    del fields[missing]
    assert Stamp.from_json(json.dumps(fields)) is None


def test_the_application_id_names_the_generation():
    assert app_id("shop", "orders") == "shop/orders"


def test_the_ledger_moves_on_the_very_version_that_it_names():
    assert vouched(OWN, 17, ledger(17, 200)) == Position(200, 2_000, {"t": (9, 9)})


def test_the_ledger_says_what_such_a_table_lacks_now():
    lacking = (Unfit("k", "t@0:1", 7, ("price",)),)
    assert vouched(OWN, 17, replace(ledger(17, 200), unfit=lacking)) == Position(200, 2_000, {"t": (9, 9)}, lacking)
    assert vouched(replace(OWN, unfit=lacking), 17, ledger(17, 200)) == Position(200, 2_000, {"t": (9, 9)})
    assert vouched(replace(OWN, unfit=lacking), 18, ledger(17, 200)) == replace(OWN, unfit=lacking)


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (17, None),
        (18, ledger(17, 200)),  # a commit came after the ledger
        (16, ledger(17, 200)),  # the table was made again
        (17, ledger(17, 100)),
        (17, ledger(17, 50)),
    ],
)
def test_otherwise_the_table_speaks_for_itself(version, line):
    assert vouched(OWN, version, line) == OWN


def test_a_table_without_a_position_gets_none_from_the_ledger():
    assert vouched(None, 17, ledger(17, 200)) is None
    assert vouched(None, None, None) is None
