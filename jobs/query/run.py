"""One query over the derived tables, each at the version that the ledger names.

In: settings and SQL. Out: an Arrow table and the cut that it shows. Keeps true: all tables of an answer stand at one
LSN, and nothing is written; what the engine says about the SQL comes back as a ConfigError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cdc.errors import CdcError, ConfigError, TransientError
from jobs.ledger import LedgerState
from jobs.query.derived import Cut, Derived, gone, reason
from jobs.query.moments import Past, Present
from jobs.query.when import When, past

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from cdc.settings import Settings
    from jobs.query.resolved import Resolved

ATTEMPTS: Final = 3
# delta-rs 1.6.6 counts rows without reading a column and forgets the limit meanwhile: SELECT 'x' FROM t LIMIT 1 has all
# of t's rows. A filter that cannot be pushed into the scan keeps the limit out of it.
_LOST_LIMIT: Final = re.compile(r"projection=\[\][^\n]*fetch=")
_FILE_GONE: Final = re.compile(r"object at location .* not found|no such file", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's result and its cut; `lacking` has how many rows the tables lack, whose values fit no Delta type."""

    table: pa.Table
    cut: Cut
    lacking: Mapping[str, int] = field(default_factory=dict)


def run_query(
    settings: Settings, sql: str, wait_lsn: int | None = None, timeout_s: float = 30.0, as_of: When | None = None
) -> Answer:
    """Run one SELECT; with `wait_lsn`, over tables that contain everything before that LSN; or as of then."""
    derived = Derived.of(settings)
    state = derived.state(wait_lsn, timeout_s)
    for _ in range(ATTEMPTS - 1):
        try:
            return _answer(derived, sql, state, wait_lsn, as_of)
        except (ConfigError, TransientError):
            # Files of a version that is no longer named may go: then, and only then, a new look can help.
            newer = derived.state()
            if newer.rows == state.rows:
                raise
            state = newer
    return _answer(derived, sql, state, wait_lsn, as_of)


def _answer(derived: Derived, sql: str, state: LedgerState, wait_lsn: int | None, as_of: When | None) -> Answer:
    from jobs.query.names import resolve

    present = Present(derived, state)
    moment: Present | Past = present
    if as_of is not None:
        moment = past(present, derived, as_of, resolve(sql, present.names, absent=present.awaited).tables.values())
    resolved = resolve(sql, moment.names, moment.select, moment.awaited)
    names = resolved.tables.values()
    cut = moment.cut(names, wait_lsn)
    opened = {engine: moment.open(name) for engine, name in resolved.tables.items()}
    lacking = {name: count for name in names if (count := moment.unfit(name))}
    return Answer(read_all(executed(resolved, opened)), cut, lacking)


def executed(query: Resolved, tables: Mapping[str, DeltaTable]) -> pa.RecordBatchReader:
    """The answer as it comes; rows are read while the reader is."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    builder = QueryBuilder()
    for name, table in tables.items():
        builder = builder.register(name, table)
    try:
        plan = builder.execute(f"EXPLAIN {query.sql}").read_all().column("plan").to_pylist()
        sql = query.guarded if any(map(_LOST_LIMIT.search, plan)) else query.sql
        # Not pa.table(): that imports pandas, which takes longer than most queries.
        return pa.RecordBatchReader.from_stream(builder.execute(sql))
    except Exception as error:
        raise failed(error) from error


def read_all(reader: pa.RecordBatchReader) -> pa.Table:
    """All of an answer."""
    try:
        return reader.read_all()
    except Exception as error:
        raise failed(error) from error


def failed(error: Exception) -> CdcError:
    """What the engine says, ours: DataFusion's errors in execution (a division by zero) have no class of their own."""
    if _FILE_GONE.search(str(error)):
        return gone(f"a file of a derived table is not there any more: {reason(error)}")
    return ConfigError(
        f"the query failed: {reason(error)}",
        "the engine is DataFusion: its functions are Postgres's for the most part",
        code="QUERY_FAILED",
    )
