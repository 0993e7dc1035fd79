"""How fast tables are read: so many rows a second over all readers together.

In: rows that were read. Out: how long to wait before the next chunk. No clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable


class Throttle:
    """Without a limit nobody waits."""

    def __init__(self, rows_per_s: int | None, now_s: Callable[[], float]) -> None:
        self._rows_per_s = rows_per_s
        self._now_s = now_s
        self._free_s = 0.0

    def spend(self, rows: int) -> None:
        """So many rows were read."""
        if self._rows_per_s is not None:
            self._free_s = max(self._free_s, self._now_s()) + rows / self._rows_per_s

    def wait_s(self) -> float:
        """How long until the next chunk may begin."""
        return max(0.0, self._free_s - self._now_s())
