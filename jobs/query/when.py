"""As of when: a position of the log, or a time, and the moment that is meant by it.

In: what the user wrote. Out: a When, and the Past that it names for some tables. Keeps true: a time is the position
before which lies every change that committed by then, and none that committed later.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc.errors import ConfigError, OperatorError
from cdc.lsn import parse_lsn
from cdc.names import quote_ident
from jobs.query.derived import Derived
from jobs.query.moments import Logs, Past, Present, ahead
from jobs.query.past import PastVersions
from sinks.history.columns import MOMENT
from sinks.protocol import LSN

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class When:
    """One of the two."""

    lsn: int | None = None
    us: int | None = None


def parse_when(text: str) -> When:
    """`0/2A5B1F8`, or a time with its zone, as ISO 8601 and Postgres write it."""
    try:
        return When(lsn=parse_lsn(text))
    except ValueError:
        pass
    try:
        time = dt.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise _unreadable("it is neither a position like 0/2A5B1F8 nor a time like 2026-11-19 01:00:00+00") from error
    return of_time(time)


def of_time(time: dt.datetime) -> When:
    """A time with its zone."""
    if time.tzinfo is None:
        raise _unreadable("the time has no zone: write 2026-11-19 01:00:00+00, or ..Z")
    return When(us=(time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))


def past(present: Present, derived: Derived, when: When, names: Collection[str]) -> Past:
    """The moment for these tables; all of them are shown at one position."""
    if when.lsn is not None:
        if when.lsn > present.state.lsn:
            raise ahead(when.lsn, present.state.lsn)
        return Past(present, derived, when.lsn, _time_of(present, derived, when.lsn, names))
    assert when.us is not None
    if when.us > present.state.source_ts_us:
        raise _too_late(present.state.source_ts_us)
    return Past(present, derived, _lsn_at(present, derived, when.us, names), when.us)


def _lsn_at(present: Present, derived: Derived, us: int, names: Collection[str]) -> int:
    logs = Logs(derived, present.state)
    meant = {logs.named.get(name, (name, ""))[0] for name in names}
    if meant - set(logs.tables) or not meant:
        # A table without a history can be shown only where a batch ended.
        return PastVersions(derived, present.state).at_time(us).lsn
    for table in meant:
        logs.require_time(table, us)
    later = f"{quote_ident(MOMENT)} > to_timestamp_micros({us})"
    found = [_one(logs.open(table), f"SELECT min({quote_ident(LSN)}) AS x FROM log WHERE {later}") for table in meant]
    lsns: list[int] = [lsn for lsn in found if lsn is not None]
    return min([present.state.lsn, *lsns])


def _time_of(present: Present, derived: Derived, lsn: int, names: Collection[str]) -> int:
    """The newest commit before the position, as far as the logs know; else the time of the batch."""
    logs = Logs(derived, present.state)
    meant = {logs.named.get(name, (name, ""))[0] for name in names} & set(logs.tables)
    before = f"{quote_ident(LSN)} < {lsn}"
    found = [
        _one(logs.open(table), f"SELECT max({quote_ident(MOMENT)}) AS x FROM log WHERE {before}") for table in meant
    ]
    times = [time for time in found if time is not None]
    if not times:
        return PastVersions(derived, present.state).time_at(lsn)
    return of_time(max(times)).us or 0


def _one(log: DeltaTable, sql: str) -> Any:
    from deltalake import QueryBuilder

    found = QueryBuilder().register("log", log).execute(sql).read_all()
    return found.column("x").to_pylist()[0]


def _unreadable(why: str) -> ConfigError:
    return ConfigError(f"--as-of cannot be read: {why}", "an LSN, or a time with its zone", code="AS_OF")


def _too_late(us: int) -> OperatorError:
    stands = f"{dt.datetime.fromtimestamp(us / 1e6, dt.UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
    return OperatorError(
        f"that time has not been reached: the tables show the source as of {stands}",
        "wait for it: `afterimage wait` with a position of then",
        code="AS_OF_AHEAD",
    )
