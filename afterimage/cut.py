"""A pipeline's derived tables for Python programs, and the moment at which they are read.

In: a configuration, or just the folder of the tables. Out: cuts, which give rows. Keeps true: whatever is read through
one cut stands at its one LSN, also while apply goes on; nothing is written, no server is asked, no JVM is started.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from afterimage.rows import Rows, imported
from cdc.errors import ConfigError
from cdc.lsn import format_lsn, parse_lsn
from jobs.query.derived import Derived, alone, common_cut
from jobs.query.resolved import Resolved, selected, whole_table

if TYPE_CHECKING:
    import polars as pl
    from deltalake import DeltaTable

    from jobs.ledger import LedgerState
    from jobs.query.derived import Cut as Moment


def open(config: str | Path | None = None) -> Pipeline:
    """The pipeline of a configuration file; without one, of the file that the command line would take."""
    from cdc.configuration import load_settings

    return Pipeline(Derived.of(load_settings(Path(config) if config is not None else None)))


def open_folder(folder: str | Path, storage_options: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline whose tables lie in this folder, `<delta.path>/<pipeline>`; a reader needs nothing else."""
    return Pipeline(Derived(str(folder).rstrip("/"), dict(storage_options or {})))


class Pipeline:
    """The derived tables of a pipeline; `at()` fixes the moment."""

    def __init__(self, derived: Derived) -> None:
        self._derived = derived

    def at(self, *tables: str, wait: str | int | None = None, timeout_s: float = 30.0) -> Cut:
        """All tables as they stand now; with `wait`, as soon as they contain everything before that LSN.

        `wait` is what `SELECT pg_current_wal_insert_lsn()` gave after a commit. Where a table has stopped alone, name
        the `tables` that are to be read.
        """
        lsn = _position(wait)
        state = self._derived.state(lsn, timeout_s)
        found = [name for table in tables for name in _selected(table, state).tables.values()]
        return Cut(self._derived, state, common_cut(state, found, lsn))


class Cut:
    """All tables at one LSN. It can be read for an hour; then replaced files go, and it says so."""

    def __init__(self, derived: Derived, state: LedgerState, moment: Moment) -> None:
        self._derived = derived
        self._state = state
        self._moment = moment

    @property
    def lsn(self) -> str:
        """Everything that committed before it is there, and nothing else."""
        return format_lsn(self._moment.lsn)

    @property
    def time(self) -> dt.datetime:
        """The source's time of it."""
        return dt.datetime.fromtimestamp(self._moment.source_ts_us / 1e6, dt.UTC)

    @property
    def tables(self) -> list[str]:
        """What can be read: mirrors by schema and table, views by their names."""
        return sorted(name for name, row in self._state.rows.items() if row.lsn == self._moment.lsn)

    def table(self, name: str, columns: Sequence[str] | None = None, where: str | None = None) -> Rows:
        """A mirror or view by its name in SQL; of it these columns, and the rows for which `where` holds."""
        return self._rows(_selected(name, self._state, columns, where))

    def query(self, sql: str) -> Rows:
        """One SELECT over any of the tables."""
        return self._rows(_resolved(sql, self._state))

    def scan(self, name: str) -> pl.LazyFrame:
        """A table as polars reads it, lazily."""
        polars = imported("polars")
        [found] = _selected(name, self._state).tables.values()
        frame: pl.LazyFrame = polars.scan_delta(self._open(found))
        return frame

    def _rows(self, resolved: Resolved) -> Rows:
        return Rows(resolved, {engine: self._open(name) for engine, name in resolved.tables.items()})

    def _open(self, name: str) -> DeltaTable:
        row = self._state.rows[name]
        if row.lsn != self._moment.lsn:
            raise alone(name, min(row.lsn, self._moment.lsn))
        return self._derived.open(self._state, name)

    def __repr__(self) -> str:
        return f"Cut({self.lsn}, {self.time:%Y-%m-%d %H:%M:%S.%f} UTC)"


def _position(wait: str | int | None) -> int | None:
    if wait is None or isinstance(wait, int):
        return wait
    try:
        return parse_lsn(wait)
    except ValueError as error:
        hint = "take one from SQL: SELECT pg_current_wal_insert_lsn() after your commit"
        raise ConfigError(str(error), hint, code="BAD_LSN") from error


def _selected(
    name: str, state: LedgerState, columns: Sequence[str] | None = None, where: str | None = None
) -> Resolved:
    if name in state.rows and "select" not in (where or "").lower():
        return whole_table(name, columns, where)
    return _resolved(selected(name, columns, where), state)


def _resolved(sql: str, state: LedgerState) -> Resolved:
    # Only here: the parser takes longer to load than a table to read.
    from jobs.query.names import resolve

    return resolve(sql, state.rows)
