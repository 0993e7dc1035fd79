"""Where everything stands, as plain values: what `status` prints, `wait` waits for and the demo tells.

In: cdc.cli.standing. Out: a Report. Keeps true: it is of one moment, and what could not be asked is in `problems`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.changes import Trouble
from cdc.cli.histories import HistoryStanding
from cdc.progress import Progress
from cdc.retention import Danger, Retention, seconds_left
from jobs.control import Proved
from jobs.control.kept import Rebuilding
from jobs.refresh.outcome import Outcome
from sinks.delta import Figures
from sinks.protocol import Unfit


@dataclass(frozen=True, slots=True)
class SourceStanding:
    """What the slot keeps of the source's log, how fast that is written (None when not measured), and the danger."""

    retention: Retention
    bytes_per_s: float | None
    danger: Danger

    @property
    def lsn(self) -> int:
        """Where the log ends."""
        return self.retention.lsn

    @property
    def seconds_left(self) -> float | None:
        """How long the slot lasts if it stays where it is."""
        return seconds_left(self.retention, self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class ViewStanding:
    """One view in one sink."""

    view: str
    sink: str
    lsn: int | None
    lag_bytes: int | None
    lag_s: float | None
    error: str | None = None
    stopped: Trouble | None = None
    unfit: tuple[Unfit, ...] = ()
    """The rows that it lacks."""
    refreshed: Outcome | None = None
    """How a query was refreshed last; its Delta table says so."""
    history: HistoryStanding | None = None
    table: Figures | None = None
    """Its Delta table in numbers, where that was asked for."""


@dataclass(frozen=True, slots=True)
class Report:
    """All of it, at one moment; `problems` name what could not be asked."""

    source: SourceStanding | None
    progress: Progress | None
    capture_lag_bytes: int | None
    capture_lag_s: float | None
    apply_owner: str | None
    views: tuple[ViewStanding, ...]
    problems: tuple[str, ...]
    proofs: Mapping[tuple[str, str], Proved] = field(default_factory=dict)
    """How the newest proof of a view in a sink ended, where there was one."""
    undeclared: tuple[str, ...] = ()
    """Tables and views that nothing declares any more: they stay as they were."""
    rebuilding: tuple[Rebuilding, ...] = ()
    """How far rebuilds are."""
    changed: tuple[str, ...] = ()
    """Views whose rows follow a former declaration until what their files say now is loaded."""
    left: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By view, the sinks that its file names no more: they stay as they were."""

    @property
    def common_lsn(self) -> int | None:
        """The LSN at which all views stand, if it is one; those of tables that stopped alone stand behind it."""
        lsns = {view.lsn for view in self.views if view.stopped is None}
        return lsns.pop() if len(lsns) == 1 else None
