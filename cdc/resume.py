"""Where capture begins: the one decision taken from the progress topic, the slot and the source's identity.

In: the newest progress record and what Postgres says of the slot. Out: take a snapshot, take it again, or stream
from a position; or an OperatorError. Keeps true: nothing is skipped silently, no slot is recreated behind one's back.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cdc.errors import OperatorError
from cdc.lsn import format_lsn
from cdc.progress import Kind, Progress


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
    if progress.kind is Kind.SNAPSHOT:
        return Start.SNAPSHOT_AGAIN
    if slot is None:
        raise OperatorError(
            f"the replication slot is gone, and with it the changes after {format_lsn(progress.lsn)}",
            "find out who dropped it; then capture under a new pipeline name, or delete the topics to start over",
            code="SLOT_MISSING",
        )
    _require_usable(slot, progress)
    return Start.STREAM


def _require_usable(slot: SlotState, progress: Progress) -> None:
    if slot.lost:
        raise OperatorError(
            f"Postgres has invalidated the slot {slot.name}: {slot.reason or 'its WAL was removed'}",
            "raise max_slot_wal_keep_size; drop the slot and the topics, then start over with a new snapshot",
            code="SLOT_LOST",
        )
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > progress.lsn:
        raise OperatorError(
            f"the slot {slot.name} stands at {format_lsn(slot.confirmed_lsn)}, past the topics at "
            f"{format_lsn(progress.lsn)}: the changes between would be skipped",
            "something else has read the slot, or the topics are an older copy: start over with a snapshot",
            code="SLOT_AHEAD",
        )
