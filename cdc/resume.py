"""Where capture begins: the one decision taken from the progress topic, the slot and the source's identity.

In: the newest progress record and what Postgres says of the slot. Out: take a snapshot, take it again, or stream
from a position; or an OperatorError. Keeps true: nothing is skipped silently, no slot is recreated behind one's back.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from cdc.errors import OperatorError
from cdc.lsn import format_lsn
from cdc.progress import Kind, Progress

_RECOVER: Final = "run `afterimage recover`: it takes a new slot and sends what differs between source and topics"

RECOVERABLE: Final = frozenset({"SLOT_MISSING", "SLOT_LOST", "SLOT_AHEAD", "RECOVER_INTERRUPTED"})
"""What a new slot and a comparison put right."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """The pipeline's slot as pg_replication_slots shows it."""

    name: str
    confirmed_lsn: int | None
    active_pid: int | None
    plugin: str
    database: str
    lost: bool
    reason: str | None = None


class Start(enum.Enum):
    """What capture has to do first."""

    SNAPSHOT = "snapshot"
    SNAPSHOT_AGAIN = "snapshot again"
    STREAM = "stream"


def decide_start(progress: Progress | None, slot: SlotState | None, system_id: str) -> Start:
    """The table of cases, in the order of what must be said first."""
    if progress is not None and progress.system_id != system_id:
        raise OperatorError(
            "this is another Postgres cluster than the one that the topics were filled from",
            "point source.host at the original cluster, or capture the new one under another pipeline name",
            code="SOURCE_CHANGED",
        )
    if progress is None:
        return Start.SNAPSHOT
    if progress.kind is Kind.SNAPSHOT and not progress.backfills:
        return Start.SNAPSHOT_AGAIN
    if progress.kind is Kind.RECOVER:
        raise OperatorError(
            "a recovery was interrupted: the topics lie between two positions of the source",
            _RECOVER,
            code="RECOVER_INTERRUPTED",
        )
    if slot is None:
        raise OperatorError(
            f"the replication slot is gone, and with it the changes after {format_lsn(progress.lsn)}",
            f"find out who dropped it, then {_RECOVER}",
            code="SLOT_MISSING",
        )
    _require_usable(slot, progress)
    return Start.STREAM


def obstacle(progress: Progress, slot: SlotState | None) -> OperatorError | None:
    """Why capture would not go on from here, as far as the slot goes; a slot that is read moves with the topics."""
    if slot is not None and slot.active_pid is not None:
        return None
    try:
        decide_start(progress, slot, progress.system_id)
    except OperatorError as error:
        return error
    return None


def require_ours(slot: SlotState | None, database: str) -> None:
    """A slot of our name that is somebody else's is neither read nor dropped."""
    if slot is not None and (slot.plugin, slot.database) != ("pgoutput", database):
        raise OperatorError(
            f"the slot {slot.name} is not this pipeline's (plugin {slot.plugin or 'none'}, database "
            f"{slot.database or 'none'})",
            "set source.slot to a name of its own",
            code="SLOT_OTHER",
        )


def require_recovery(progress: Progress | None, slot: SlotState | None, system_id: str, *, force: bool) -> Progress:
    """The record that a recovery goes on from; OperatorError where there is nothing to recover from or for."""
    try:
        start = decide_start(progress, slot, system_id)
    except OperatorError as error:
        if error.code not in RECOVERABLE:
            raise
        assert progress is not None
        return progress
    if progress is None or start is not Start.STREAM:
        raise _nothing_to_recover("no snapshot is complete yet", "start capture: it takes one by itself")
    if not force:
        raise _nothing_to_recover(
            "the slot is as it must be: capture goes on from it",
            "start capture; `recover --force` takes a new slot and compares all the same",
        )
    return progress


def _require_usable(slot: SlotState, progress: Progress) -> None:
    if slot.lost:
        raise OperatorError(
            f"Postgres has given up the slot {slot.name}: {slot.reason or 'its WAL was removed'}",
            f"put right what made Postgres do that, then {_RECOVER}",
            code="SLOT_LOST",
        )
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > progress.lsn:
        raise OperatorError(
            f"the slot {slot.name} stands at {format_lsn(slot.confirmed_lsn)}, past the topics at "
            f"{format_lsn(progress.lsn)}: the changes between would be skipped",
            f"something else has read the slot, or the topics are an older copy: {_RECOVER}",
            code="SLOT_AHEAD",
        )


def _nothing_to_recover(message: str, hint: str) -> OperatorError:
    return OperatorError(message, hint, code="NOTHING_TO_RECOVER")
