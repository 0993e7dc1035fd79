"""Rounds: each holds apply at the LSN of a snapshot of the source for as long as one piece of work takes.

In: work. Out: its result. Keeps true: a result counts only if nothing moved meanwhile; else the round is repeated, a
limited number of times. Between two rounds apply runs for as long at least as it was held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from cdc.errors import TransientError
from cdc.settings import Settings
from jobs.prove.holder import Holder
from jobs.prove.result import OnProgress, Progress
from jobs.prove.source import SourceCut, source_at_lsn
from snapshot.throttle import Throttle

ATTEMPTS: Final = 4

T = TypeVar("T")


class MovedError(Exception):
    """A sink went on while it was read: apply did not stand still."""


class Rounds:
    """One after the other; `rest` waits between them, and may raise to end the proof."""

    def __init__(
        self,
        settings: Settings,
        holder: Holder,
        on_progress: OnProgress,
        rest: Callable[[float], object] = time.sleep,
    ) -> None:
        self._settings = settings
        self._holder = holder
        self._on_progress = on_progress
        self._rest = rest
        self._throttle = Throttle(settings.prove.rows_per_s, time.monotonic)
        self._held_s = 0.0

    def run(self, work: Callable[[SourceCut], T]) -> T:
        """Do it at one LSN."""
        self._rest(max(self._held_s, self._throttle.wait_s()))
        with self._holder:
            began_s = time.monotonic()
            done = self._attempts(work)
        self._held_s = time.monotonic() - began_s
        return done

    def spend(self, rows: int) -> None:
        """So many rows were read: the next round waits for as long as they may take."""
        self._throttle.spend(rows)

    def _attempts(self, work: Callable[[SourceCut], T]) -> T:
        for _ in range(ATTEMPTS):
            self._on_progress(Progress("taking a snapshot of the source"))
            with source_at_lsn(self._settings) as cut:
                if not self._holder.hold_at(cut.lsn):
                    continue
                try:
                    return work(cut)
                except MovedError:
                    continue
        raise TransientError(
            f"apply did not stand still in {ATTEMPTS} attempts",
            "is a second apply of this pipeline running, or this machine overloaded? try again",
            code="PROVE_MOVED",
        )
