"""Large transactions in capture's machine: published in parts that are no boundary, and a later run sends the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.changes import UNCHANGED
from cdc.effects import Confirm
from cdc.errors import ProtocolError
from cdc.progress import Kind, Part
from tests.support import frames
from tests.support.capture_machine import LIMITS, START, TABLE, Driven, commits, framed, transaction, values


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
