"""Capture's machine by hand: what is produced, committed and confirmed of a stream, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.changes import UNCHANGED, Record
from cdc.effects import Announce, Commit, Complete, Confirm, Poll, Produce, Seal
from cdc.frames import POSTGRES_EPOCH_US
from cdc.progress import Kind, Part, Progress, checksum
from tests.support import frames
from tests.support.capture_machine import LIMITS, START, TABLE, TOPIC, Driven, commits, framed, transaction, values


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
