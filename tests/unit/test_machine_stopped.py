"""Tables that stop alone in capture's machine, and tables read beside its stream: from where on each is whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.backfill import Backfill, Chunk, RowImage
from cdc.batching import Limits
from cdc.changes import UNCHANGED
from cdc.effects import Announce, Finish, ReadTable
from cdc.merging import Fed, GivenUp
from cdc.progress import Kind, Stop
from cdc.visibility import Visibility
from tests.support import frames
from tests.support.capture_machine import START, TABLE, TOPIC, Driven, commits, framed, transaction, values


def test_a_shape_that_cannot_follow_stops_its_table_alone():
    driven = Driven(announced=False, refused=True)

    effects = driven.see(*transaction(120, 3), after_s=9.0) + driven.see(*transaction(140, 3), after_s=9.0)

    assert sum(isinstance(effect, Announce) for effect in effects) == 1
    assert values(effects) == []
    assert [(each.kind, each.stopped, each.schemas) for each in commits(effects)] == [
        (Kind.IDLE, {TOPIC: Stop(120)}, 1),
        (Kind.IDLE, {TOPIC: Stop(120)}, 1),
    ]


def test_a_row_that_cannot_be_completed_stops_its_table_too():
    sent = framed(
        frames.begin(120),
        frames.relation(frames.relation_message(TABLE)),
        frames.insert(TABLE.oid, ("1", "x")),
        frames.update(TABLE.oid, ("1", UNCHANGED)),
        frames.insert(TABLE.oid, ("2", "x")),
        frames.commit(120),
    )

    effects = Driven(refused=True).see(*sent)

    assert values(effects) == ["120:1:77"]
    assert commits(effects)[0].stopped == {TOPIC: Stop(120)}


@pytest.mark.parametrize(
    ("stop", "taken"),
    [
        (Stop(120), False),
        (Stop(121), True),
        (Stop(90, 120, 120), True),
        (Stop(90, 121, 121), False),
        (Stop(90, 120), True),
    ],
)
def test_a_stopped_table_is_left_out_until_it_was_read_again(stop: Stop, taken: bool):
    start = replace(START, stopped={TOPIC: stop})

    effects = Driven(start, stopped={TABLE.oid: TOPIC}).see(*transaction(120, 1), after_s=9.0)

    assert bool(values(effects)) is taken
    assert commits(effects)[0].stopped == {TOPIC: stop}


def test_a_table_that_was_read_beside_the_stream_is_whole_where_its_last_row_lies():
    reading = Backfill("j", TABLE.oid, TABLE.schema, TABLE.name, TOPIC, initial=False, joins=True)
    start = replace(START, stopped={TOPIC: Stop(90, since=95)}, backfills=(reading,))
    driven = Driven(start, stopped={TABLE.oid: TOPIC})
    chunk = Chunk("j", TABLE, None, None, [RowImage(b"9", 0, b"")], Visibility(100, 100, frozenset()), 120)

    before = driven.see(*transaction(120, 1, 130), after_s=9.0)
    after = driven.see(frames.keepalive(140), after_s=9.0, fed=Fed(chunks=[chunk]))

    assert commits(before)[0].stopped == {TOPIC: Stop(90, since=95)}
    assert [effect for effect in after if isinstance(effect, Finish)] == [Finish(replace(reading, rows=1), None, 140)]
    assert commits(after)[0].stopped == {TOPIC: Stop(90, since=95, until=140)}
    assert commits(after)[0].schemas == START.schemas + 1


def test_a_table_without_rows_is_written_down_though_the_log_rests():
    reading = Backfill("i", TABLE.oid, TABLE.schema, TABLE.name, TOPIC, initial=True)
    driven = Driven(replace(START, kind=Kind.SNAPSHOT, backfills=(reading,)))
    chunk = Chunk("i", TABLE, None, None, [], Visibility(100, 100, frozenset()), START.lsn)

    [written] = commits(driven.see(after_s=9.0, fed=Fed(chunks=[chunk])))

    assert (written.kind, written.lsn, written.backfills) == (Kind.IDLE, START.lsn, ())


def test_chunks_that_are_due_are_merged_before_views_may_stand_there():
    """Else the last one waits until the log moves on, which it may not do for hours."""
    reading = Backfill("j", TABLE.oid, TABLE.schema, TABLE.name, TOPIC, initial=False, joins=True)
    start = replace(START, stopped={TOPIC: Stop(90, since=95)}, backfills=(reading,))
    driven = Driven(start, Limits(batch_records_max=1), stopped={TABLE.oid: TOPIC})
    sees, row = Visibility(100, 100, frozenset()), RowImage(b"9", 0, b"")
    chunks = [Chunk("j", TABLE, None, ("9",), [row], sees, 120), Chunk("j", TABLE, ("9",), None, [row], sees, 120)]

    effects = driven.see(frames.keepalive(140), after_s=9.0, fed=Fed(chunks=chunks))

    assert commits(effects)[0].stopped == {TOPIC: Stop(90, since=95, until=140)}


def test_a_table_that_could_not_be_read_stays_stopped_from_where_it_was():
    reading = Backfill("j", TABLE.oid, TABLE.schema, TABLE.name, TOPIC, initial=False, joins=True)
    start = replace(START, stopped={TOPIC: Stop(90, since=95)}, backfills=(reading,))
    driven = Driven(start, stopped={TABLE.oid: TOPIC})

    effects = driven.see(after_s=9.0, fed=Fed(given_up=[GivenUp(reading, "no right to it")]))
    effects += driven.see(*transaction(120, 1), after_s=9.0)

    assert values(effects) == []
    assert commits(effects)[-1].stopped == {TOPIC: Stop(90)}
    assert commits(effects)[-1].backfills == ()


def test_while_a_table_joins_nobody_else_has_it_read():
    asked = Backfill("asked", TABLE.oid, TABLE.schema, TABLE.name, TOPIC, initial=False)
    driven = Driven(replace(START, stopped={TOPIC: Stop(90)}), stopped={TABLE.oid: TOPIC})

    effects = driven.see(after_s=9.0, fed=Fed(begun=[asked]))

    [refused] = [effect for effect in effects if isinstance(effect, Finish)]
    assert refused.failure is not None
    assert not any(isinstance(effect, ReadTable) for effect in effects)
