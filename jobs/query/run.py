"""One query over the derived tables, each at the version that the ledger names.

In: settings and SQL. Out: an Arrow table and the cut that it shows. Keeps true: all tables of an answer stand at one
LSN, and nothing is written; what the engine says about the SQL comes back as a ConfigError.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cdc.errors import ConfigError, OperatorError, TransientError
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.ledger import Ledger, LedgerState

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from jobs.query.names import Resolved

POLL_S: Final = 0.05
ATTEMPTS: Final = 3
# delta-rs 1.6.6 counts rows without reading a column and forgets the limit meanwhile: SELECT 'x' FROM t LIMIT 1 has all
# of t's rows. A filter that cannot be pushed into the scan keeps the limit out of it.
_LOST_LIMIT: Final = re.compile(r"projection=\[\][^\n]*fetch=")


@dataclass(frozen=True, slots=True)
class Cut:
    """The moment that an answer shows: everything that committed before this LSN, and nothing else."""

    lsn: int
    source_ts_us: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's result and its cut; `lacking` has how many rows the tables lack, whose values fit no Delta type."""

    table: pa.Table
    cut: Cut
    lacking: Mapping[str, int] = field(default_factory=dict)


def run_query(settings: Settings, sql: str, wait_lsn: int | None = None, timeout_s: float = 30.0) -> Answer:
    """Run one SELECT; with `wait_lsn`, over tables that contain everything before that LSN."""
    ledger = Ledger(settings.delta_root, settings.delta.storage_options)
    state = _await(ledger, wait_lsn, timeout_s) if wait_lsn is not None else ledger.read()
    if state is None:
        raise OperatorError(
            f"pipeline {settings.pipeline} has no derived tables yet",
            "apply makes them: `afterimage status` says whether it runs and how far it is",
            code="NO_TABLES",
        )
    for _ in range(ATTEMPTS - 1):
        try:
            return _answer(settings, sql, state, wait_lsn)
        except (ConfigError, TransientError):
            # Files of a version that is no longer named may go: then, and only then, a new look can help.
            newer = ledger.read()
            if newer is None or newer.rows == state.rows:
                raise
            state = newer
    return _answer(settings, sql, state, wait_lsn)


def _await(ledger: Ledger, lsn: int, timeout_s: float) -> LedgerState | None:
    deadline = time.monotonic() + timeout_s
    while (state := ledger.read()) is None or state.lsn < lsn:
        if time.monotonic() > deadline:
            stands = f"they stand at {format_lsn(state.lsn)}" if state else "there are none yet"
            raise TransientError(
                f"the tables did not reach {format_lsn(lsn)} within {timeout_s:g} s: {stands}",
                "see `afterimage status`: are capture and apply running? or wait longer with --timeout",
                code="WAIT_TIMEOUT",
            )
        time.sleep(POLL_S)
    return state


def _answer(settings: Settings, sql: str, state: LedgerState, wait_lsn: int | None) -> Answer:
    from jobs.query.names import resolve

    resolved = resolve(sql, state.rows)
    cut = _cut(state, resolved.tables.values(), wait_lsn)
    opened = {
        engine: _open(f"{settings.delta_root}/{name}", state.rows[name].version, settings.delta.storage_options)
        for engine, name in resolved.tables.items()
    }
    lacking = {name: len(state.rows[name].unfit) for name in resolved.tables.values() if state.rows[name].unfit}
    return Answer(_executed(resolved, opened), cut, lacking)


def _cut(state: LedgerState, names: Collection[str], wait_lsn: int | None) -> Cut:
    """Where the query's tables stand: all at one position, or it has no answer."""
    rows = [state.rows[name] for name in names]
    oldest = min(rows, key=lambda row: row.lsn, default=None)
    if oldest is None:
        return Cut(state.lsn, state.source_ts_us)
    if any(row.lsn != oldest.lsn for row in rows) or oldest.lsn < (wait_lsn or 0):
        raise OperatorError(
            f"{oldest.name} has stopped at {format_lsn(oldest.lsn)} alone, the other tables have gone on",
            "see `afterimage status` for the reason; a query of that table alone shows it as it was then",
            code="TABLE_STOPPED",
        )
    return Cut(oldest.lsn, oldest.source_ts_us)


def _open(path: str, version: int, storage_options: Mapping[str, str]) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(path, version=version, storage_options=dict(storage_options) or None)
    except (DeltaError, OSError) as error:
        raise TransientError(
            f"version {version} of a derived table cannot be opened: {_first_line(error)}",
            "try again; if it stays, `afterimage rebuild` the view",
            code="DELTA_UNAVAILABLE",
        ) from error


def _executed(query: Resolved, tables: Mapping[str, DeltaTable]) -> pa.Table:
    import pyarrow as pa
    from deltalake import QueryBuilder

    builder = QueryBuilder()
    for name, table in tables.items():
        builder = builder.register(name, table)
    try:
        plan = builder.execute(f"EXPLAIN {query.sql}").read_all().column("plan").to_pylist()
        sql = query.guarded if any(map(_LOST_LIMIT.search, plan)) else query.sql
        # Not pa.table(): that imports pandas, which takes longer than most queries.
        return pa.RecordBatchReader.from_stream(builder.execute(sql)).read_all()
    except Exception as error:
        # DataFusion's errors in execution (a division by zero) have no class of their own.
        raise ConfigError(
            f"the query failed: {_first_line(error)}",
            "the engine is DataFusion: its functions are Postgres's for the most part",
            code="QUERY_FAILED",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
