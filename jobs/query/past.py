"""Versions of tables without a history, as far back as the ledger's own old versions go.

In: a position or a time. Out: the ledger's state of then, and tables at the versions that it names. Keeps true: a table
is shown at a position only if the ledger named that position, or the same version on both sides of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc.errors import OperatorError
from cdc.lsn import format_lsn
from jobs.ledger import KEPT_MINUTES, Ledger, LedgerState
from jobs.query.derived import Derived

if TYPE_CHECKING:
    from deltalake import DeltaTable


class PastVersions:
    """The ledger's past."""

    def __init__(self, derived: Derived, newest: LedgerState) -> None:
        self._derived = derived
        self._newest = newest
        self._ledger = Ledger(derived.root, derived.options)

    def at_time(self, us: int) -> LedgerState:
        """The newest state of no later time."""
        state = self._last(lambda state: state.source_ts_us <= us)[0]
        if state is None:
            raise _gone("the ledger's state of that time")
        return state

    def time_at(self, lsn: int) -> int:
        """The time of the newest state at or before a position, as far as it is known."""
        state = self._last(lambda state: state.lsn <= lsn)[0]
        return state.source_ts_us if state is not None else self._newest.source_ts_us

    def open(self, name: str, lsn: int) -> DeltaTable:
        """A table at a position."""
        before, after = self._last(lambda state: state.lsn <= lsn)
        row = before.rows.get(name) if before is not None else None
        if before is None or row is None:
            raise _gone(f"{name} as of {format_lsn(lsn)}")
        later = after.rows.get(name) if after is not None else None
        if row.lsn != lsn and (later is None or later.version != row.version):
            raise _between(name, lsn, row.lsn)
        return self._derived.open(before, name)

    def _last(self, holds: Callable[[LedgerState], bool]) -> tuple[LedgerState | None, LedgerState | None]:
        """The last state for which it holds and the one after it; it holds for no state after one for which not."""
        if holds(self._newest):
            return self._newest, None
        low, high = self._ledger.versions()
        after = self._newest
        found: LedgerState | None = None
        while low <= high:
            middle = (low + high) // 2
            state = self._ledger.read_version(middle)
            if state is None or holds(state):  # what is cleared away is older
                found, low = state, middle + 1
            else:
                after, high = state, middle - 1
        return found, after


def _gone(what: str) -> OperatorError:
    return OperatorError(
        f"{what} is gone: tables without a history can be read as of {KEPT_MINUTES} minutes ago at most",
        "name the table under history.tables, and changes are kept from then on",
        code="NO_HISTORY",
    )


def _between(name: str, lsn: int, before: int) -> OperatorError:
    return OperatorError(
        f"{name} has no history, and no batch ended at {format_lsn(lsn)}",
        f"ask as of {format_lsn(before)}, where one did, or name its table under history.tables",
        code="NO_HISTORY",
    )
