"""Queries that stopped alone, since their SQL fails on a row or their key is not unique, and those that wait for them.

In: errors of refreshes, and the rows that were read then. Out: each view's Trouble, for the log, metrics and commands.
Keeps true: what failed is tried again when anything that it reads has changed or somebody asks for it, and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdc import metrics
from cdc.changes import Trouble
from cdc.errors import OperatorError
from cdc.log import get
from jobs.refresh.ways import is_unchanged
from jobs.twins import is_twin_name
from sinks.delta.held import Held

_log = get(__name__)

SPARK: Final = "SPARK"
ALONE: Final = frozenset({"VIEW_FAILED", "VIEW_REFUSED", "VIEW_KEY_NOT_UNIQUE", SPARK})
"""What a query may fail with and stop no other view: its own SQL, over these rows."""


class FailingViews:
    """Of one session; a new one tries all of them again."""

    def __init__(self) -> None:
        self._troubles: dict[str, Trouble] = {}
        self._read: dict[str, Mapping[str, Held]] = {}

    @property
    def troubles(self) -> Mapping[str, Trouble]:
        """Why each view that is behind is so."""
        return dict(self._troubles)

    def fails_again(self, view: str, now: Mapping[str, Held]) -> bool:
        """Whether it has failed over these very rows."""
        read = self._read.get(view)
        return read is not None and is_unchanged(read, now)

    def fail(self, view: str, error: OperatorError, now: Mapping[str, Held]) -> None:
        """Its refresh from these rows has failed."""
        # What Spark gives no reason for may be over by the next batch.
        self._read[view] = now if error.code != SPARK else {}
        trouble = Trouble(error.code, error.message, error.hint or "")
        if self._troubles.get(view) != trouble:
            _log.error("view stopped alone", view=view, code=error.code, reason=error.message, remedy=error.hint)
        self._take(view, trouble)

    def try_again(self, view: str) -> None:
        """Somebody asks for it, whether or not anything has changed."""
        self._read.pop(view, None)

    def wait(self, view: str, below: str) -> None:
        """It reads a view that stands behind."""
        self._read.pop(view, None)
        trouble = waiting(view, below)
        if self._troubles.get(view) != trouble:
            _log.warning("view waits", view=view, reason=trouble.message)
        self._take(view, trouble)

    def succeed(self, view: str) -> None:
        """It stands where it should."""
        self._read.pop(view, None)
        if self._troubles.pop(view, None) is not None:
            _log.info("view follows again", view=view)
        self._measure(view, 0)

    def forget(self, view: str) -> None:
        """It is not kept up to date any more."""
        self._read.pop(view, None)
        self._troubles.pop(view, None)

    def _take(self, view: str, trouble: Trouble) -> None:
        self._troubles[view] = trouble
        self._measure(view, 1)

    def _measure(self, view: str, stopped: int) -> None:
        # What is loaded beside is no view of anybody's: status tells why it is not shown.
        if not is_twin_name(view):
            metrics.VIEW_STOPPED.labels(view).set(stopped)


def waiting(view: str, below: str) -> Trouble:
    """Why a view that reads one that stands behind stands behind, or is not loaded."""
    message = f"view {view} waits for {below}, which stopped alone"
    return Trouble("VIEW_WAITS", message, f"it follows by itself once {below} does: see `afterimage status`")
