"""What a query can name, and what each name stands for: now, or as of an earlier position.

In: the ledger's state. Out: names; for each a Delta table at a version, and the SELECT over it that is meant. Keeps
true: all of a moment's tables are shown at its one LSN, or there is no answer over them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from cdc.errors import CdcError, OperatorError
from cdc.lsn import format_lsn
from jobs.ledger import LedgerState
from jobs.query.awaited import awaited
from jobs.query.derived import Cut, Derived, alone, gone
from jobs.query.past import PastVersions
from jobs.query.resolved import selected
from sinks.history import sql
from sinks.history.columns import FOLDER, HISTORY
from sinks.history.reach import Reach, parse_reach
from sinks.position import load_position
from sinks.spec import HIDDEN

if TYPE_CHECKING:
    from deltalake import DeltaTable

Select = Callable[[str], str]
"""The engine's name of a table to the SELECT over it that is meant."""

VERSIONS: Final = "_history"
CHANGES: Final = "_changes"
BEYOND: Final = "HISTORY_BEYOND"
RECENT_COMMITS: Final = 10


@dataclass(frozen=True)
class Logs:
    """The tables that have a history: their names, and what each log says of itself."""

    derived: Derived
    state: LedgerState
    _reaches: dict[str, Reach] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """By the names of their mirrors."""
        return sorted(name.removeprefix(f"{FOLDER}/") for name in self.state.rows if _is_log(name))

    @property
    def named(self) -> dict[str, tuple[str, str]]:
        """What a query calls versions and changes: the table and which of the two; a real table goes before these."""
        names = {f"{table}{kind}": (table, kind) for table in self.tables for kind in (VERSIONS, CHANGES)}
        return {name: meant for name, meant in names.items() if name not in self.state.rows}

    def open(self, table: str) -> DeltaTable:
        """The log."""
        return self.derived.open(self.state, f"{FOLDER}/{table}")

    def reach(self, table: str) -> Reach:
        """How far it goes."""
        if table not in self._reaches:
            self._reaches[table] = _told(self.open(table), table)
        return self._reaches[table]

    def require_time(self, table: str, us: int) -> None:
        """What was deleted before the log began is not in it, so no earlier time can be told."""
        reach = self.reach(table)
        if us < reach.begin_us:
            raise _beyond(table, _time(us), reach)

    def over(self, table: str, kind: str, lsn: int) -> Select:
        """The SELECT for versions or changes before a position."""
        shape = self.reach(table).shape_at(lsn)
        if kind == CHANGES:
            return lambda log: sql.changes(log, shape, lsn)
        return lambda log: sql.versions(log, shape, lsn)


class Present:
    """Everything as the ledger has it."""

    def __init__(self, derived: Derived, state: LedgerState) -> None:
        self._derived = derived
        self._logs = Logs(derived, state)
        self._opened: dict[str, DeltaTable] = {}
        self.state = state

    @property
    def names(self) -> Collection[str]:
        """What can be named."""
        return {name for name in self.state.rows if not _is_log(name)} | self._logs.named.keys()

    def cut(self, names: Collection[str], wait_lsn: int | None = None) -> Cut:
        """Where the named tables stand: all at one position, or there is no answer over them."""
        rows = [self.state.rows[self._folder(name)] for name in names]
        oldest = min(rows, key=lambda row: row.lsn, default=None)
        if oldest is None:
            return Cut(self.state.lsn, self.state.source_ts_us)
        if any(row.lsn != oldest.lsn for row in rows) or oldest.lsn < (wait_lsn or 0):
            raise alone(oldest.name.removeprefix(f"{FOLDER}/"), oldest.lsn)
        return Cut(oldest.lsn, oldest.source_ts_us)

    @property
    def with_history(self) -> list[str]:
        """The tables whose past is kept."""
        return self._logs.tables

    def readable(self, lsn: int) -> list[str]:
        """The tables and views that stand there."""
        return sorted(name for name, row in self.state.rows.items() if row.lsn == lsn and not _is_log(name))

    def select(self, name: str) -> Select | None:
        """What is meant over the table; None: all of it."""
        if name not in self._logs.named:
            return shown(name, self.open)
        table, kind = self._logs.named[name]
        return self._logs.over(table, kind, self.state.rows[f"{FOLDER}/{table}"].lsn)

    def open(self, name: str) -> DeltaTable:
        """The Delta table behind a name."""
        if name not in self._opened:
            self._opened[name] = self._derived.open(self.state, self._folder(name))
        return self._opened[name]

    def awaited(self, name: str) -> CdcError | None:
        """Why a name that is none of these is not among them although it is declared."""
        return awaited(self._derived.views, name)

    def unfit(self, name: str) -> int:
        """How many rows it lacks."""
        return len(self.state.rows[self._folder(name)].unfit)

    def _folder(self, name: str) -> str:
        named = self._logs.named.get(name)
        return name if named is None else f"{FOLDER}/{named[0]}"


class Past:
    """Everything as it was at an earlier position."""

    def __init__(self, present: Present, derived: Derived, lsn: int, source_ts_us: int) -> None:
        self._present = present
        self._logs = Logs(derived, present.state)
        self._versions = PastVersions(derived, present.state)
        self.lsn = lsn
        self.source_ts_us = source_ts_us

    @property
    def names(self) -> Collection[str]:
        """The same as now."""
        return self._present.names

    def cut(self, names: Collection[str], _wait_lsn: int | None = None) -> Cut:
        """The position itself."""
        for table in {self._logs.named.get(name, (name, ""))[0] for name in names} & {*self._logs.tables}:
            self._checked(table)
        return Cut(self.lsn, self.source_ts_us)

    def readable(self, lsn: int) -> list[str]:
        """The tables whose past is kept; of others only the last minutes."""
        return [table for table in self._logs.tables if self._present.state.rows[f"{FOLDER}/{table}"].lsn >= lsn]

    def select(self, name: str) -> Select | None:
        """The state, or the versions and changes up to it."""
        table, kind = self._logs.named.get(name, (name, ""))
        if table not in self._logs.tables:
            return shown(name, self.open)
        reach = self._checked(table)
        if kind:
            return self._logs.over(table, kind, self.lsn)
        shape = reach.shape_at(self.lsn)
        return lambda log: sql.state(log, shape, self.lsn)

    def open(self, name: str) -> DeltaTable:
        """The log, or for a table without one the version that the ledger named then."""
        table = self._logs.named.get(name, (name, ""))[0]
        return self._logs.open(table) if table in self._logs.tables else self._versions.open(name, self.lsn)

    def awaited(self, name: str) -> CdcError | None:
        """The same as now."""
        return self._present.awaited(name)

    def unfit(self, name: str) -> int:
        """A log holds no row that fits no type; what a table lacked then is not looked up."""
        return 0

    def _checked(self, table: str) -> Reach:
        reach, row = self._logs.reach(table), self._present.state.rows[f"{FOLDER}/{table}"]
        if self.lsn > row.lsn:
            raise ahead(self.lsn, row.lsn)
        if self.lsn < reach.begin_lsn:
            raise _beyond(table, format_lsn(self.lsn), reach)
        if (gap := reach.gap_at(self.lsn)) is not None:
            raise _unknown(table, self.lsn, gap)
        return reach


def hidden(table: DeltaTable) -> list[str]:
    """The columns that apply keeps for itself."""
    return [field.name for field in table.schema().fields if field.name.startswith(HIDDEN)]


def shown(name: str, open_: Callable[[str], DeltaTable]) -> Select | None:
    """A view's columns, if it has others beside; a mirror has none."""
    if "." in name or not (beside := hidden(table := open_(name))):
        return None
    columns = [field.name for field in table.schema().fields if field.name not in beside]
    return lambda engine: selected(engine, columns, None)


def _told(log: DeltaTable, table: str) -> Reach:
    """What its newest stamp says; others' commits may lie above it."""
    for limit in (RECENT_COMMITS, None):
        for commit in log.history(limit):
            stamp = load_position(commit.get("userMetadata"))
            if stamp is not None and HISTORY in stamp[1]:
                return parse_reach(stamp[1][HISTORY])
    raise gone(f"the history of {table} does not say how far it goes")


def ahead(lsn: int, reached: int) -> CdcError:
    """The error of asking for a state that is not there yet."""
    return OperatorError(
        f"{format_lsn(lsn)} has not been reached: the tables stand at {format_lsn(reached)}",
        f"wait for it: afterimage query --wait {format_lsn(lsn)}",
        code="AS_OF_AHEAD",
    )


def _beyond(table: str, wanted: str, reach: Reach) -> CdcError:
    return OperatorError(
        f"the history of {table} goes back to {format_lsn(reach.begin_lsn)} ({_time(reach.begin_us)}), not to {wanted}",
        "history.keep says how long changes are kept; what is folded already does not come back",
        code=BEYOND,
    )


def _unknown(table: str, lsn: int, gap: tuple[int, int]) -> CdcError:
    low, high = map(format_lsn, gap)
    return OperatorError(
        f"what {table} was at {format_lsn(lsn)} is not known: not every change between {low} and {high} was seen",
        f"ask as of {low} or {high}; see HISTORY.md for what makes such gaps",
        code="HISTORY_GAP",
    )


def _time(us: int) -> str:
    import datetime as dt

    return f"{dt.datetime.fromtimestamp(us / 1e6, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


@cache
def _is_log(name: str) -> bool:
    return name.startswith(f"{FOLDER}/")
