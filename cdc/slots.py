"""The pipeline's replication slot as Postgres sees it.

In: an ordinary connection. Out: SlotState, or None where there is no such slot; and how much log it keeps. Works on a
standby too, where the log ends at what was replayed.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from cdc.lsn import parse_lsn
from cdc.resume import SlotState
from cdc.retention import Retention
from cdc.sqlstate import translated

_PG16: Final = 160_000
_PG17: Final = 170_000

LOG_END: Final = (
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() "
    "ELSE pg_catalog.pg_current_wal_insert_lsn() END"
)
"""Where the log ends for whoever reads this server: a standby knows what it has replayed."""

_STATE: Final = """
SELECT s.slot_name, s.confirmed_flush_lsn::text, s.active_pid, s.plugin, s.database, {reason}
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s
"""
_RETENTION: Final = """
SELECT one.lsn::text, s.confirmed_flush_lsn::text, s.active,
       pg_catalog.pg_wal_lsn_diff(one.lsn, s.restart_lsn)::int8, s.safe_wal_size, s.wal_status, {reason}
FROM (SELECT {log_end} AS lsn) one LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = %s
"""


def read_slot(connection: psycopg.Connection[Any], name: str) -> SlotState | None:
    """The slot's state."""
    query = _STATE.format(reason=_reason(connection))
    with translated():
        row = connection.execute(query.encode(), (name,)).fetchone()
    if row is None:
        return None
    slot, confirmed, pid, plugin, database, reason = row
    return SlotState(slot, _parsed(confirmed), pid, plugin or "", database or "", reason is not None, reason)


def read_retention(connection: psycopg.Connection[Any], name: str) -> Retention:
    """How much of the log the slot keeps."""
    query = _RETENTION.format(reason=_reason(connection), log_end=LOG_END)
    with translated():
        row = connection.execute(query.encode(), (name,)).fetchone()
    assert row is not None
    lsn, confirmed, active, kept, safe, status, reason = row
    return Retention(parse_lsn(lsn), _parsed(confirmed), active, kept, safe, status, reason)


def _reason(connection: psycopg.Connection[Any]) -> str:
    """Why the slot was given up, in Postgres's words; older servers keep the reason to themselves."""
    version = connection.info.server_version
    lost = "CASE WHEN s.wal_status = 'lost' THEN 'wal_removed' END"
    if version >= _PG17:
        return f"coalesce(s.invalidation_reason, {lost})"
    if version >= _PG16:
        return f"CASE WHEN s.conflicting THEN 'rows_removed or wal_level_insufficient' ELSE {lost} END"
    return lost


def _parsed(lsn: str | None) -> int | None:
    return parse_lsn(lsn) if lsn is not None else None
