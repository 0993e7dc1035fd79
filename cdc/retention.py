"""How much of the source's log the slot keeps, and when that becomes a danger to the source or to the slot.

In: what pg_replication_slots showed, once or twice. Out: a danger with code, sentence and remedy; the one place that
decides this for capture, `status` and `check`. Keeps true: nothing is optimistic; a slot that moves on lasts longer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from cdc.sizes import duration_text, size_text

_NEARLY_FULL: Final = 0.8
"""Of max_slot_wal_keep_size: an alarm with a fifth left still leaves time to act."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The slot's side of the log at one moment; `lsn` is where the log ends. No slot: everything else is None."""

    lsn: int
    confirmed_lsn: int | None = None
    active: bool | None = None
    kept_bytes: int | None = None
    safe_bytes: int | None = None
    """What may still be written before the slot can be lost; None where nothing limits what slots keep."""
    wal_status: str | None = None
    reason: str | None = None
    """Why Postgres gave the slot up, in its own word; None while it has not."""


class Level(enum.IntEnum):
    """In order of danger."""

    SAFE = 0
    WARNING = 1
    ALARM = 2
    LOST = 3


@dataclass(frozen=True, slots=True)
class Danger:
    """What is wrong with a slot, for a log, a screen or a finding."""

    level: Level
    code: str = ""
    message: str = ""
    remedy: str = ""


SAFE: Final = Danger(Level.SAFE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """From the configuration: what is worth a warning, and what must never be reached."""

    warning_bytes: int
    max_bytes: int


def judge(retention: Retention, bounds: Bounds, slot: str, bytes_per_s: float | None = None) -> Danger:
    """The danger that the slot is in, or the source because of it."""
    kept, safe = retention.kept_bytes, retention.safe_bytes
    if retention.reason is not None:
        return _lost(slot, retention.reason)
    if retention.wal_status == "unreserved":
        return _at_risk(f"the WAL that the slot {slot} needs may be removed at the next checkpoint")
    if kept is None:
        return SAFE
    keeps = f"the slot {slot} keeps {size_text(kept)} of WAL"
    if safe is not None and kept > _NEARLY_FULL * (kept + safe):
        lasts = seconds_left(retention, bytes_per_s)
        soon = f", in {duration_text(lasts)} as it is written now" if lasts is not None else ""
        return _at_risk(f"{keeps} and is lost after {size_text(max(0, safe))} more{soon}")
    if kept > bounds.max_bytes:
        return _at_risk(f"{keeps} on the server, more than source.wal_kept_max_bytes ({size_text(bounds.max_bytes)})")
    if kept > bounds.warning_bytes:
        return Danger(
            Level.WARNING,
            code="WAL_KEPT",
            message=f"{keeps} on the server",
            remedy="start capture if it is down; a long transaction also keeps WAL (see pg_stat_activity)",
        )
    return SAFE


def seconds_left(retention: Retention, bytes_per_s: float | None) -> float | None:
    """How long the slot lasts if it stays where it is while the log is written at this rate; None: for ever."""
    if retention.safe_bytes is None or not bytes_per_s:
        return None
    return max(0, retention.safe_bytes) / bytes_per_s


def written_per_s(earlier: Retention, later: Retention, seconds: float) -> float | None:
    """The rate at which the source writes its log, in bytes a second."""
    return max(0, later.lsn - earlier.lsn) / seconds if seconds > 0 else None


def _lost(slot: str, reason: str) -> Danger:
    return Danger(
        Level.LOST,
        code="SLOT_LOST",
        message=f"Postgres has given up the slot {slot} ({reason}): changes are missing from here on",
        remedy="put right what made Postgres do that (see the runbook), then run: afterimage recover",
    )


def _at_risk(message: str) -> Danger:
    return Danger(
        Level.ALARM,
        code="SLOT_AT_RISK",
        message=message,
        remedy="start capture if it is down, end long transactions (pg_stat_activity), or raise max_slot_wal_keep_size",
    )
