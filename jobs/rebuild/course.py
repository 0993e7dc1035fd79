"""How far a rebuild is, and how long it may still take: by phases, each at its own rate.

In: what is done now and how much of that; what a proof says of itself. Out: a share of the whole, seconds or None.
Keeps true: the share never goes back; a phase that nobody can measure has no time left rather than a wrong one.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from jobs.prove.result import Progress


class Doing(enum.Enum):
    """A rebuild's phases, in order."""

    LOADING = "loading"
    PROVING = "proving"
    CATCHING_UP = "catching up"


_PLAIN: Final = {Doing.LOADING: (0.0, 0.9), Doing.PROVING: (0.9, 0.9), Doing.CATCHING_UP: (0.9, 1.0)}
_PROVED: Final = {Doing.LOADING: (0.0, 0.5), Doing.PROVING: (0.5, 0.95), Doing.CATCHING_UP: (0.95, 1.0)}
"""Which part of the whole a phase is, from where to where."""
_IN_CHUNKS: Final = 0.9


@dataclass(frozen=True, slots=True)
class Standing:
    """From 0 to 1, and how many seconds are left, if that can be told."""

    share: float
    left_s: float | None


class Course:
    """Of one rebuild; ask `at` again and again."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._doing = Doing.LOADING
        self._began_s = clock_s()
        self._share = 0.0

    def at(self, doing: Doing, done: float | None, *, prove: bool) -> Standing:
        """So much of the present phase is done, from 0 to 1; None where that can't be told."""
        now_s = self._clock_s()
        if doing is not self._doing:
            self._doing, self._began_s = doing, now_s
        begin, end = (_PROVED if prove else _PLAIN)[doing]
        measured = (end - begin) * (done or 0.0)
        self._share = max(self._share, begin + measured)
        left_s = (now_s - self._began_s) * (1 - begin - measured) / measured if measured > 0 else None
        return Standing(round(self._share, 3), left_s)


class RowsRead:
    """What a proof has read, of Postgres and of each sink, as a share of what it will read.

    In: how many rows each view has, in how many sinks. A view that is read in chunks has each sink read once more, for
    keys that no chunk had.
    """

    def __init__(self, rows: Mapping[str, int], sinks: Mapping[str, int]) -> None:
        self._rows = rows
        self._sinks = sinks
        self._chunked: set[str] = set()
        self._before: Progress | None = None
        self._read = 0

    def take(self, progress: Progress) -> None:
        """What the proof says."""
        before, self._before = self._before, progress
        if progress.view is None:
            return
        goes_on = before is not None and _what(before) == _what(progress) and before.done <= progress.done
        self._read += progress.done - (before.done if goes_on and before is not None else 0)
        rows = self._rows.get(progress.view, 0)
        if progress.total is not None and progress.total < _IN_CHUNKS * rows:
            self._chunked.add(progress.view)

    def share(self) -> float | None:
        """From 0 to 1."""
        whole = sum(rows * self._times(view) for view, rows in self._rows.items())
        return min(1.0, self._read / whole) if whole else None

    def _times(self, view: str) -> int:
        return 1 + self._sinks.get(view, 0) * (2 if view in self._chunked else 1)


def _what(progress: Progress) -> tuple[str, str | None, str | None]:
    return progress.doing, progress.view, progress.sink
