"""A pipeline's derived tables for Python programs, and the moment at which they are read.

In: a configuration, or just the folder of the tables. Out: cuts, which give rows. Keeps true: whatever is read through
one cut stands at its one LSN, also while apply goes on; nothing is written, no server is asked, no JVM is started.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from afterimage.rows import Rows
from cdc.errors import ConfigError
from cdc.lsn import format_lsn, parse_lsn
from jobs.query.derived import Derived, alone
from jobs.query.moments import Past, Present, hidden
from jobs.query.resolved import Resolved, selected, whole_table
from jobs.query.when import When, of_time, parse_when, past

if TYPE_CHECKING:
    import polars as pl
    from deltalake import DeltaTable

    from jobs.query.derived import Cut as Shown


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

    def at(
        self,
        *tables: str,
        wait: str | int | None = None,
        timeout_s: float = 30.0,
        as_of: str | int | dt.datetime | None = None,
    ) -> Cut:
        """All tables as they stand now; with `wait`, as soon as they contain everything before that LSN.

        `wait` is what `SELECT pg_current_wal_insert_lsn()` gave after a commit. Where a table has stopped alone, name
        the `tables` that are to be read. With `as_of`, an LSN or a time: all tables as they were then
        (docs/HISTORY.md); of a time, those that are named decide which position it is.
        """
        lsn = _position(wait)
        present = Present(self._derived, self._derived.state(lsn, timeout_s))
        found = [name for table in tables for name in _selected(table, present).tables.values()]
        if as_of is None:
            return Cut(present, present.cut(found, lsn))
        moment = past(present, self._derived, _when(as_of), found or present.with_history)
        return Cut(moment, moment.cut(found))


class Cut:
    """All tables at one LSN. It can be read for an hour; then replaced files go, and it says so."""

    def __init__(self, moment: Present | Past, cut: Shown) -> None:
        self._moment = moment
        self._cut = cut

    @property
    def lsn(self) -> str:
        """Everything that committed before it is there, and nothing else."""
        return format_lsn(self._cut.lsn)

    @property
    def time(self) -> dt.datetime:
        """The source's time of it."""
        return dt.datetime.fromtimestamp(self._cut.source_ts_us / 1e6, dt.UTC)

    @property
    def tables(self) -> list[str]:
        """What can be read: mirrors by schema and table, views by their names."""
        return self._moment.readable(self._cut.lsn)

    def table(self, name: str, columns: Sequence[str] | None = None, where: str | None = None) -> Rows:
        """A mirror or view by its name in SQL; of it these columns, and the rows for which `where` holds."""
        return self._rows(_selected(name, self._moment, columns, where))

    def query(self, sql: str) -> Rows:
        """One SELECT over any of the tables."""
        return self._rows(_resolved(sql, self._moment))

    def scan(self, name: str) -> pl.LazyFrame:
        """A table as polars reads it, lazily."""
        import polars as pl

        selected = _selected(name, self._moment)
        [found] = selected.tables.values()
        opened = self._open(found)
        beside = hidden(opened)
        if self._moment.select(found) is not None and not beside:
            frame: pl.LazyFrame = self._rows(selected).polars().lazy()
        else:
            frame = pl.scan_delta(opened).drop(beside)
        return frame

    def _rows(self, resolved: Resolved) -> Rows:
        return Rows(resolved, {engine: self._open(name) for engine, name in resolved.tables.items()})

    def _open(self, name: str) -> DeltaTable:
        own = self._moment.cut([name])
        if own.lsn != self._cut.lsn:
            raise alone(name, min(own.lsn, self._cut.lsn))
        return self._moment.open(name)

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


def _when(as_of: str | int | dt.datetime) -> When:
    if isinstance(as_of, int):
        return When(lsn=as_of)
    return of_time(as_of) if isinstance(as_of, dt.datetime) else parse_when(as_of)


def _selected(
    name: str, moment: Present | Past, columns: Sequence[str] | None = None, where: str | None = None
) -> Resolved:
    if name in moment.names and moment.select(name) is None and "select" not in (where or "").lower():
        return whole_table(name, columns, where)
    return _resolved(selected(name, columns, where), moment)


def _resolved(sql: str, moment: Present | Past) -> Resolved:
    # Only here: the parser takes longer to load than a table to read.
    from jobs.query.names import resolve

    return resolve(sql, moment.names, moment.select, moment.awaited)
