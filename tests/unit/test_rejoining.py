"""What a session does about stopped and joining tables before it streams: positions and records, without servers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc.announcing import Announcing
from cdc.changes import Column, Record, Trouble
from cdc.effects import Commit, Left, Produce, Seal
from cdc.look import Look
from cdc.progress import Kind, Progress, Stop
from cdc.rejoining import Make, Measure, Rejoining, Size, Tell
from cdc.schema_record import SchemaRecord
from cdc.tables import Tables
from tests.support.frames import table

TABLES = Tables("shop", "db", 1, {})
ORDERS = table("orders", (("id", 23), ("note", 25)), oid=7)
ORDERS = replace(ORDERS, columns=tuple(replace(each, number=at) for at, each in enumerate(ORDERS.columns, 1)))
WIDER = replace(ORDERS, columns=(*ORDERS.columns, Column("extra", 25, -1, "text", 25, is_key=False, number=3)))
NAME = "public", "orders"
TOPIC = "shop.public.orders"
KNOWN = TABLES.schema_record(ORDERS, 10)
STUCK = Trouble("REPLICA_IDENTITY", "cannot be told", "")
START = Progress(4, Kind.IDLE, 90, 100, 1, 0, 0, {TOPIC: (3,)}, "7000")


def look(*, stuck: Trouble | None = None, is_gone: bool = False) -> Look:
    current = {} if stuck or is_gone else {NAME: ORDERS}
    return Look(current, {NAME: stuck} if stuck else {}, {}, frozenset([NAME] if is_gone else []), frozenset([7]))


def done(start: Progress, found: Look, *, source_lsn: int = 100) -> tuple[Progress, list[Record], list[SchemaRecord]]:
    """Everything carried out: the last record committed, the data records, the schema records."""
    rejoining = Rejoining(TABLES, start, {NAME: KNOWN}, source_lsn, lambda: 5_000_000)
    effects = rejoining.run(found)
    answer: Any = None
    records: list[Record] = []
    told: list[SchemaRecord] = []
    committed = start
    while True:
        try:
            effect = effects.send(answer)
        except StopIteration:
            return committed, records, told
        answer = None
        match effect:
            case Measure():
                answer = {each.oid: Size(3, fits_chunks=True) for each in effect.relations}
            case Make():
                answer = (3,)
            case Seal():
                answer = {}
            case Produce():
                records += effect.records
            case Tell():
                told.append(effect.record)
            case Commit():
                committed = effect.progress


def stopped(stop: Stop) -> Progress:
    return replace(START, stopped={TOPIC: stop})


class TestReadAgain:
    def test_what_voids_its_topic_is_behind_where_its_views_stop(self):
        progress, [void], _ = done(stopped(Stop(100)), look(), source_lsn=100)

        [reading] = progress.backfills
        assert reading.joins
        assert progress.stopped[TOPIC] == Stop(100, since=100)
        source = json.loads(void.value or b"")["source"]
        assert (source["commit_lsn"], source["ordinal"]) == (100, 0)

    def test_nothing_older_comes_after_what_voids_its_topic(self):
        progress, _, _ = done(stopped(Stop(150)), look(), source_lsn=200)

        assert progress.stopped[TOPIC] == Stop(100, since=200)

    def test_it_is_not_begun_twice(self):
        begun, _, _ = done(stopped(Stop(100)), look())

        assert done(begun, look()) == (begun, [], [])


class TestStuck:
    @pytest.mark.parametrize(
        ("code", "at"), [("REPLICA_IDENTITY", 200), ("PUBLICATION_LACKS", 100), ("PUBLICATION_PARTIAL", 100)]
    )
    def test_what_the_log_has_whole_still_flows(self, code: str, at: int):
        progress, _, [record] = done(START, look(stuck=Trouble(code, "", "")), source_lsn=200)

        assert progress.stopped[TOPIC] == Stop(at)
        assert record.stopped == Trouble(code, "", "")

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (Stop(50), Stop(50)),
            (Stop(50, since=60), Stop(50)),
            (Stop(50, since=60, until=80), Stop(200, whole=80)),
            (Stop(50, since=150, until=150), Stop(200, whole=150)),
            (Stop(90, whole=80), Stop(90, whole=80)),
        ],
    )
    def test_no_earlier_stop_is_forgotten(self, before: Stop, after: Stop):
        progress, _, _ = done(stopped(before), look(stuck=STUCK), source_lsn=200)

        assert progress.stopped[TOPIC] == after

    def test_a_first_snapshot_that_waits_for_nothing_else_is_done(self):
        [reading] = done(stopped(Stop(100)), look())[0].backfills
        begun = replace(START, kind=Kind.SNAPSHOT, backfills=(replace(reading, initial=True, joins=False),))
        progress, _, _ = done(begun, look(stuck=STUCK), source_lsn=200)

        assert progress.kind is Kind.IDLE
        assert progress.stopped[TOPIC] == Stop(100), "its rows are not all there, even where the log still has them"


def test_a_table_given_up_lacks_what_it_lacked_before():
    progress, _, _ = done(stopped(Stop(50)), look(is_gone=True))

    assert progress.stopped[TOPIC] == Stop(50)


class TestShapes:
    def test_what_is_being_read_is_announced_when_it_is_whole(self):
        told: list[SchemaRecord] = []
        announcing = Announcing(Tables("shop", "db", 1, {7: ORDERS}), told.append)

        assert announcing.announce(WIDER, 120, {TOPIC: Stop(100, since=110)}) is None
        assert told == []
        [reading] = done(stopped(Stop(100)), look())[0].backfills
        announcing.joined(reading, None, 130)
        assert [(record.relation, record.stopped) for record in told] == [(WIDER, None)]

    def test_once_it_is_whole_its_shapes_are_announced(self):
        told: list[SchemaRecord] = []
        announcing = Announcing(Tables("shop", "db", 1, {7: ORDERS}), told.append)

        assert announcing.announce(WIDER, 120, {TOPIC: Stop(100, since=110, until=115)}) is None
        assert len(told) == 1

    def test_a_table_that_nobody_knows_is_left_out(self):
        announcing = Announcing(TABLES, lambda _: None)

        assert announcing.announce(ORDERS, 120, {}) == Left(TOPIC)
        assert announcing.must_look
