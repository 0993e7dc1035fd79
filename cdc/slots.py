"""The pipeline's replication slot as Postgres sees it.

In: an ordinary connection. Out: SlotState, or None where there is no such slot.
"""

from __future__ import annotations

from typing import Any

import psycopg

from cdc.lsn import parse_lsn
from cdc.resume import SlotState
from cdc.sqlstate import translated

_PG17 = 170_000

_QUERY = """
SELECT slot_name, confirmed_flush_lsn::text, active_pid, plugin, database,
       wal_status = 'lost' OR {invalid}, {reason}
FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""


def read_slot(connection: psycopg.Connection[Any], name: str) -> SlotState | None:
    """The slot's state."""
    newer = connection.info.server_version >= _PG17
    query = _QUERY.format(
        invalid="invalidation_reason IS NOT NULL" if newer else "false",
        reason="invalidation_reason" if newer else "NULL",
    )
    with translated():
        row = connection.execute(query.encode(), (name,)).fetchone()
    if row is None:
        return None
    slot, confirmed, pid, plugin, database, lost, reason = row
    lsn = parse_lsn(confirmed) if confirmed is not None else None
    return SlotState(slot, lsn, pid, plugin or "", database or "", bool(lost), reason)
