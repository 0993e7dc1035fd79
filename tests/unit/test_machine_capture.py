"""Capture's machine by hand: frames in, effects out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc.assembler import Assembler
from cdc.backfill import Backfill, Chunk, RowImage
from cdc.batching import Limits
from cdc.changes import UNCHANGED, Change, Origin, Record
from cdc.effects import (
    Announce,
    Commit,
    Complete,
    Confirm,
    Effect,
    Finish,
    Left,
    Poll,
    Polled,
    Produce,
    ReadTable,
    Seal,
)
from cdc.errors import ProtocolError
from cdc.frames import POSTGRES_EPOCH_US
from cdc.machine import CaptureMachine
from cdc.merging import NOTHING, Fed, GivenUp
from cdc.pgoutput import LogicalMessage
from cdc.progress import Kind, Part, Progress, Stop, checksum
from cdc.visibility import Visibility
from tests.support import frames

TABLE = frames.table()
TOPIC = "shop.public.accounts"
MESSAGES = "shop._messages"
START = Progress(4, Kind.STREAM, 50, 100, 9, 0, 0, {TOPIC: (7, 3)}, "7000")
LIMITS = Limits(flush_interval_s=1.0, idle_interval_s=5.0, part_records_max=3, batch_records_max=6, chunk_records=2)


class Encoder:
    """One record a change, whose value says which."""

    compiled = None

    def change_records(self, change: Change, origin: Origin, ordinal: int, ts_ms: int) -> list[Record]:
        return [Record(TOPIC, 0, b"k", f"{origin.commit_lsn}:{ordinal}:{ts_ms}".encode())]

    def read_records(self, images: Sequence[RowImage], origin: Origin, ts_ms: int) -> list[Record]:
        return [Record(TOPIC, image.partition, image.key, f"{origin.commit_lsn}".encode()) for image in images]


def message_record(message: LogicalMessage, origin: Origin | None, ordinal: int | None, ts_ms: int) -> Record:
    commit_lsn = origin.commit_lsn if origin is not None else None
    return Record(MESSAGES, 0, b"k", f"{message.lsn}:{commit_lsn}:{ordinal}:{ts_ms}".encode())


class Driven:
    """A machine with its newest effect; `see` sends frames and goes on to the next Poll."""

    def __init__(
        self,
        start: Progress = START,
        limits: Limits = LIMITS,
        announced: bool = True,
        refused: bool = False,
        stopped: dict[int, str] | None = None,
    ) -> None:
        assembler = Assembler(lambda _: TABLE, spill_directory=Path("unused"), spill_bytes=1 << 30)
        known = {TABLE.oid: TABLE} if announced else {}
        machine = CaptureMachine(start, assembler, lambda _: Encoder(), known, limits, message_record, stopped)
        self._refused = refused
        self._effects: Generator[Effect, Any, Any] = machine.run()
        self._answer: Any = None
        self.now_s = 0.0
        self.effects: list[Effect] = []
        self._to_poll()

    def see(self, *sent: bytes, drained: bool = True, after_s: float = 2.0, fed: Fed = NOTHING) -> list[Effect]:
        self.now_s += after_s
        self.effects = []
        self._answer = Polled(sent, drained, self.now_s, 77, fed)
        self._to_poll()
        return self.effects

    def _to_poll(self) -> None:
        while True:
            effect = self._effects.send(self._answer)
            self._answer = {TOPIC: {0: 11}} if isinstance(effect, Seal) else None
            if isinstance(effect, Commit):
                self._answer = self.now_s
            if isinstance(effect, Complete):
                self._answer = Left(TOPIC) if self._refused else replace(effect.change, new=("1", "whole"))
            if isinstance(effect, Announce):
                self._answer = Left(TOPIC) if self._refused else None
            self.effects.append(replace_records(effect))
            if isinstance(effect, Poll):
                return


def replace_records(effect: Effect) -> Effect:
    return Produce(tuple(effect.records)) if isinstance(effect, Produce) else effect


def transaction(commit_lsn: int, changes: int, end_lsn: int | None = None) -> list[bytes]:
    rows = [frames.insert(TABLE.oid, (str(number), "x")) for number in range(changes)]
    return framed(
        frames.begin(commit_lsn, 5, POSTGRES_EPOCH_US),
        frames.relation(frames.relation_message(TABLE)),
        *rows,
        frames.commit(commit_lsn, end_lsn),
    )


def framed(*payloads: bytes) -> list[bytes]:
    return [frames.wal_data(payload) for payload in payloads]


def values(effects: Sequence[Effect]) -> list[str]:
    return [
        record.value.decode()
        for effect in effects
        if isinstance(effect, Produce)
        for record in effect.records
        if record.value
    ]


def commits(effects: Sequence[Effect]) -> list[Progress]:
    return [effect.progress for effect in effects if isinstance(effect, Commit)]


def test_it_begins_by_confirming_what_the_topics_hold():
    assert Driven().effects == [Confirm(100, ask_reply=True), Poll(5.0)]


def test_a_transaction_is_produced_sealed_committed_and_then_confirmed():
    effects = Driven().see(*transaction(120, 1, 130))

    assert values(effects) == ["120:1:77"]
    [progress] = commits(effects)
    record = Record(TOPIC, 0, b"k", b"120:1:77")
    assert [type(effect) for effect in effects] == [Produce, Seal, Commit, Confirm, Poll]
    assert effects[3] == Confirm(130)
    assert progress == Progress(
        5, Kind.STREAM, 100, 130, POSTGRES_EPOCH_US, 1, checksum([record]), {TOPIC: (11, 3)}, "7000"
    )
    assert progress.follows(START)


@pytest.mark.parametrize(("commit_lsn", "taken"), [(99, False), (100, True)])
def test_what_committed_before_the_progress_is_passed_over(commit_lsn: int, taken: bool):
    effects = Driven().see(*transaction(commit_lsn, 1))

    assert bool(values(effects)) is taken
    assert bool(commits(effects)) is taken


def test_nothing_is_committed_before_the_interval_while_more_is_coming():
    driven = Driven()

    assert driven.see(*transaction(120, 1), drained=False, after_s=0.1) == [Poll(1.0)]
    assert commits(driven.see(*transaction(140, 1), drained=False, after_s=1.0))[0].lsn == 148


def test_a_full_batch_is_committed_at_once():
    limits = replace(LIMITS, part_records_max=100)

    effects = Driven(limits=limits).see(*transaction(120, 6), *transaction(140, 1), drained=False, after_s=0.1)

    assert [progress.lsn for progress in commits(effects)] == [128]
    assert values(effects)[-1] == "120:11:77"


def test_a_large_transaction_goes_out_in_parts_that_are_no_boundary():
    driven = Driven()

    # What is left over rests for the flush interval, like every batch behind another.
    effects = driven.see(*transaction(120, 7, 130)) + driven.see()

    assert [(p.kind, p.lsn, p.part, p.records) for p in commits(effects)] == [
        (Kind.PART, 100, Part(120, 3), 3),
        (Kind.PART, 100, Part(120, 6), 3),
        (Kind.STREAM, 130, None, 1),
    ]
    assert [effect.lsn for effect in effects if isinstance(effect, Confirm)] == [100, 100, 130]


def test_whole_transactions_before_a_large_one_make_a_boundary():
    limits = replace(LIMITS, part_records_max=2)
    driven = Driven(limits=limits)

    effects = driven.see(*transaction(110, 2, 120), *transaction(120, 3, 130)) + driven.see()

    assert [(p.kind, p.lsn, p.part) for p in commits(effects)] == [
        (Kind.STREAM, 120, None),
        (Kind.PART, 120, Part(120, 2)),
        (Kind.STREAM, 130, None),
    ]


def test_a_large_transaction_is_split_by_bytes_too():
    # Each of these records has nine bytes and more.
    driven = Driven(limits=replace(LIMITS, part_bytes_max=18))

    effects = driven.see(*transaction(120, 5, 130)) + driven.see()

    assert [(p.kind, p.part) for p in commits(effects)] == [
        (Kind.PART, Part(120, 2)),
        (Kind.PART, Part(120, 4)),
        (Kind.STREAM, None),
    ]


def test_a_part_ends_after_so_many_rows_read_from_the_source():
    row = frames.update(TABLE.oid, ("1", UNCHANGED))
    described = frames.relation(frames.relation_message(TABLE))
    sent = framed(frames.begin(120), described, row, row, row, frames.commit(120, 130))

    driven = Driven(limits=replace(LIMITS, part_completed_max=2))

    effects = driven.see(*sent) + driven.see()

    assert [(p.kind, p.part) for p in commits(effects)] == [(Kind.PART, Part(120, 2)), (Kind.STREAM, None)]


class TestMessages:
    """What pg_logical_emit_message wrote."""

    LOOSE = frames.logical_message("p", b"", 150, transactional=False)

    @staticmethod
    def transaction(*lsns: int) -> list[bytes]:
        described = frames.relation(frames.relation_message(TABLE))
        row = frames.insert(TABLE.oid, ("1", "x"))
        messages = [frames.logical_message("p", b"", lsn) for lsn in lsns]
        return framed(frames.begin(120), described, row, *messages, row, frames.commit(120, 130))

    def test_one_in_a_transaction_stands_before_the_change_that_follows(self):
        assert values(Driven().see(*self.transaction(110))) == ["120:1:77", "110:120:3:77", "120:3:77"]

    def test_one_by_itself_is_told_once_and_is_a_boundary(self):
        driven = Driven()

        effects = driven.see(*framed(self.LOOSE))

        assert values(effects) == ["150:None:None:77"]
        assert [(p.kind, p.lsn) for p in commits(effects)] == [(Kind.STREAM, 150)]
        assert commits(driven.see(*framed(self.LOOSE), after_s=60)) == []
        assert values(Driven(replace(START, lsn=149)).see(*framed(self.LOOSE))) == ["150:None:None:77"]

    def test_a_part_counts_them(self):
        driven = Driven(limits=replace(LIMITS, part_records_max=2))

        effects = driven.see(*self.transaction(110, 111)) + driven.see()

        assert [p.part for p in commits(effects)] == [Part(120, 1, 1), None]
        rest = Driven(replace(START, kind=Kind.PART, part=Part(120, 1, 1))).see(*self.transaction(110, 111))
        assert values(rest) == ["111:120:3:77", "120:3:77"]

    def test_one_before_the_rest_of_a_transaction_makes_no_boundary(self):
        start = replace(START, kind=Kind.PART, part=Part(200, 1))

        [progress] = commits(Driven(start).see(*framed(self.LOOSE)))

        assert (progress.kind, progress.part, progress.lsn) == (Kind.PART, Part(200, 1), 150)


class TestAfterAPart:
    """A run that begins where an earlier one had published a part."""

    START = replace(START, kind=Kind.PART, part=Part(120, 3))

    def test_the_rest_follows(self):
        effects = Driven(self.START).see(*transaction(120, 5, 130))

        assert values(effects) == ["120:7:77", "120:9:77"]
        assert [(p.kind, p.lsn, p.part) for p in commits(effects)] == [(Kind.STREAM, 130, None)]

    def test_no_idle_position_is_written_before_it_is_whole(self):
        driven = Driven(self.START)

        assert commits(driven.see(frames.keepalive(115), after_s=60)) == []
        assert [p.kind for p in commits(driven.see(*transaction(120, 4)))] == [Kind.STREAM]
        assert [p.kind for p in commits(driven.see(frames.keepalive(300), after_s=60))] == [Kind.IDLE]

    def test_another_transaction_in_its_place_is_an_error(self):
        with pytest.raises(ProtocolError) as raised:
            Driven(self.START).see(*transaction(140, 1))

        assert raised.value.code == "PART_LOST"


def test_an_idle_position_is_written_after_a_while():
    driven = Driven()

    assert commits(driven.see(frames.keepalive(150), after_s=1)) == []
    [progress] = commits(driven.see(frames.keepalive(160), after_s=5))
    assert (progress.kind, progress.lsn, progress.records, progress.ends) == (Kind.IDLE, 160, 0, START.ends)


def test_a_position_that_did_not_move_is_not_written():
    assert commits(Driven().see(frames.keepalive(100), after_s=60)) == []


def test_a_keepalive_inside_a_transaction_does_not_count():
    driven = Driven()
    begin, *rest = transaction(120, 1)

    assert commits(driven.see(begin, frames.keepalive(500), after_s=60)) == []
    assert commits(driven.see(*rest))[0].lsn == 128


def test_a_requested_reply_confirms_what_is_committed_and_no_more():
    effects = Driven().see(frames.keepalive(150, reply_requested=True), after_s=1)

    assert effects[0] == Confirm(100)


def test_when_nothing_comes_it_asks_where_the_log_stands():
    assert Driven().see() == [Confirm(100, ask_reply=True), Poll(5.0)]


def test_an_unknown_shape_is_announced_before_its_rows():
    effects = Driven(announced=False).see(*transaction(120, 3))

    assert effects[0] == Announce(TABLE, 120)
    assert sum(isinstance(effect, Announce) for effect in effects) == 1


def test_unchanged_values_are_completed_before_they_are_encoded():
    sent = framed(
        frames.begin(120),
        frames.relation(frames.relation_message(TABLE)),
        frames.update(TABLE.oid, ("1", UNCHANGED)),
        frames.commit(120),
    )

    effects = Driven().see(*sent)

    assert [type(effect) for effect in effects[:2]] == [Complete, Produce]


def test_chunks_are_produced_while_a_transaction_is_read():
    effects = Driven(limits=replace(LIMITS, part_records_max=100)).see(*transaction(120, 5))

    assert [len(effect.records) for effect in effects if isinstance(effect, Produce)] == [2, 2, 1]
    assert commits(effects)[0].records == 5


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
