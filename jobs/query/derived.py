"""The derived tables of a pipeline, where a reader finds them: which stand at which LSN, and each at its version.

In: the folder of a pipeline. Out: the ledger's state, at once or when it contains an LSN; opened Delta tables. Keeps
true: what is opened is the very version that the ledger names, and nothing is written.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.errors import OperatorError, TransientError
from cdc.lsn import format_lsn
from jobs.ledger import Ledger, LedgerState

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from cdc.settings import Settings

POLL_S: Final = 0.05
_CAUSED_BY: Final = re.compile(r"^caused by$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cut:
    """The moment that an answer shows: everything that committed before this LSN, and nothing else."""

    lsn: int
    source_ts_us: int


@dataclass(frozen=True, slots=True)
class Derived:
    """A pipeline's tables under `root`, which ends in the pipeline's name."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict)
    views: Path | None = None
    """The folder of the view files, where that is known."""

    @classmethod
    def of(cls, settings: Settings) -> Derived:
        """Where the configuration says."""
        return cls(settings.delta_root, settings.delta.storage_options, settings.views)

    def state(self, wait_lsn: int | None = None, timeout_s: float = 30.0) -> LedgerState:
        """What the ledger says; with `wait_lsn`, as soon as it contains everything before that LSN."""
        ledger = Ledger(self.root, self.options)
        deadline = time.monotonic() + timeout_s
        while (state := ledger.read()) is None or state.lsn < (wait_lsn or 0):
            if wait_lsn is None:
                raise self._nothing()
            if time.monotonic() > deadline:
                raise _too_late(wait_lsn, state, timeout_s)
            time.sleep(POLL_S)
        return state

    def open(self, state: LedgerState, name: str) -> DeltaTable:
        """One table as the state has it."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        version = state.rows[name].version
        try:
            return DeltaTable(f"{self.root}/{name}", version=version, storage_options=dict(self.options) or None)
        except (DeltaError, OSError) as error:
            raise gone(f"version {version} of a derived table cannot be opened: {reason(error)}") from error

    def _nothing(self) -> OperatorError:
        return OperatorError(
            f"pipeline {self.root.rpartition('/')[2]} has no derived tables yet",
            "apply makes them: `afterimage status` says whether it runs and how far it is",
            code="NO_TABLES",
        )


def alone(name: str, lsn: int) -> OperatorError:
    """The error of a query over a table that stopped, and others."""
    return OperatorError(
        f"{name} has stopped at {format_lsn(lsn)} alone, the other tables have gone on",
        "see `afterimage status` for the reason; a query of that table alone shows it as it was then",
        code="TABLE_STOPPED",
    )


def gone(message: str) -> TransientError:
    """The error of a version whose log entries or files are not there."""
    return TransientError(message, "try again; if it stays, `afterimage rebuild` the view", code="DELTA_UNAVAILABLE")


def reason(error: Exception) -> str:
    """A foreign error in a line: of the engine's, which say what they were doing first, the innermost cause."""
    cause = _CAUSED_BY.split(str(error).strip())[-1].strip()
    return cause.splitlines()[0] if cause else type(error).__name__


def _too_late(lsn: int, state: LedgerState | None, timeout_s: float) -> TransientError:
    stands = f"they stand at {format_lsn(state.lsn)}" if state else "there are none yet"
    return TransientError(
        f"the tables did not reach {format_lsn(lsn)} within {timeout_s:g} s: {stands}",
        "see `afterimage status`: are capture and apply running? or wait longer with --timeout",
        code="WAIT_TIMEOUT",
    )
