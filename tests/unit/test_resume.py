"""Where capture begins: every case of progress, slot and cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.backfill import Backfill
from cdc.errors import OperatorError
from cdc.progress import Kind, Part, Progress
from cdc.resume import SlotState, Start, decide_start, require_recovery

STREAMED = Progress(7, Kind.STREAM, 50, 100, 0, 1, 0, {}, "7000")
SLOT = SlotState("afterimage_shop", 100, None, "pgoutput", "shop", lost=False)


@pytest.mark.parametrize("slot", [None, SLOT, replace(SLOT, lost=True)])
def test_nothing_in_the_topics_begins_with_a_snapshot(slot: SlotState | None):
    assert decide_start(None, slot, "7000") is Start.SNAPSHOT


@pytest.mark.parametrize("slot", [None, SLOT, replace(SLOT, confirmed_lsn=500), replace(SLOT, lost=True)])
def test_an_interrupted_snapshot_is_taken_again_whatever_the_slot(slot: SlotState | None):
    progress = replace(STREAMED, kind=Kind.SNAPSHOT, snapshot={})

    assert decide_start(progress, slot, "7000") is Start.SNAPSHOT_AGAIN


def test_a_snapshot_of_which_only_chunks_are_left_goes_on():
    left = (Backfill("initial-1", 1, "public", "big", "shop.public.big", initial=True),)
    progress = replace(STREAMED, kind=Kind.SNAPSHOT, backfills=left)

    assert decide_start(progress, SLOT, "7000") is Start.STREAM


@pytest.mark.parametrize("confirmed", [None, 0, 99, 100])
@pytest.mark.parametrize("kind", [Kind.STREAM, Kind.IDLE, Kind.PART])
def test_a_slot_that_is_no_further_than_the_topics_is_streamed(kind: Kind, confirmed: int | None):
    progress = replace(STREAMED, kind=kind, part=Part(120, 3) if kind is Kind.PART else None)

    assert decide_start(progress, replace(SLOT, confirmed_lsn=confirmed), "7000") is Start.STREAM


@pytest.mark.parametrize(
    ("progress", "slot", "system_id", "code"),
    [
        (STREAMED, SLOT, "8000", "SOURCE_CHANGED"),
        (replace(STREAMED, kind=Kind.SNAPSHOT), None, "8000", "SOURCE_CHANGED"),
        (STREAMED, None, "7000", "SLOT_MISSING"),
        (STREAMED, replace(SLOT, lost=True), "7000", "SLOT_LOST"),
        (STREAMED, replace(SLOT, lost=True, confirmed_lsn=None), "7000", "SLOT_LOST"),
        (STREAMED, replace(SLOT, confirmed_lsn=101), "7000", "SLOT_AHEAD"),
        (replace(STREAMED, kind=Kind.RECOVER), SLOT, "7000", "RECOVER_INTERRUPTED"),
        (replace(STREAMED, kind=Kind.RECOVER), None, "7000", "RECOVER_INTERRUPTED"),
    ],
)
def test_what_would_skip_changes_stops_capture(progress: Progress, slot: SlotState | None, system_id: str, code: str):
    with pytest.raises(OperatorError) as raised:
        decide_start(progress, slot, system_id)

    assert raised.value.code == code
    assert raised.value.hint


def test_a_lost_slot_says_why():
    with pytest.raises(OperatorError, match="wal_removed"):
        decide_start(STREAMED, replace(SLOT, lost=True, reason="wal_removed"), "7000")


@pytest.mark.parametrize(
    ("progress", "slot"),
    [
        (STREAMED, None),
        (STREAMED, replace(SLOT, lost=True)),
        (STREAMED, replace(SLOT, confirmed_lsn=101)),
        (replace(STREAMED, kind=Kind.RECOVER), SLOT),
        (replace(STREAMED, kind=Kind.PART, part=Part(120, 3)), None),
    ],
)
def test_what_recover_is_for(progress: Progress, slot: SlotState | None):
    assert require_recovery(progress, slot, "7000", force=False) is progress


@pytest.mark.parametrize(
    ("progress", "system_id", "code"),
    [
        (None, "7000", "NOTHING_TO_RECOVER"),
        (replace(STREAMED, kind=Kind.SNAPSHOT), "7000", "NOTHING_TO_RECOVER"),
        (STREAMED, "7000", "NOTHING_TO_RECOVER"),
        (STREAMED, "8000", "SOURCE_CHANGED"),
    ],
)
def test_what_recover_is_not_for(progress: Progress | None, system_id: str, code: str):
    with pytest.raises(OperatorError) as raised:
        require_recovery(progress, SLOT, system_id, force=False)

    assert raised.value.code == code


def test_recover_can_be_asked_for_all_the_same():
    assert require_recovery(STREAMED, SLOT, "7000", force=True) is STREAMED
