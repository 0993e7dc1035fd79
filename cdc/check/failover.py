"""Whether the slot would survive a failover: what is missing on the primary, and on each standby that may take over.

In: a connection to the source, and to every server of source.standbys. Out: findings. From Postgres 17 on; before, a
slot stays behind and `afterimage recover` is the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.check.finding import Finding, critical, ok, warning
from cdc.errors import CdcError
from cdc.names import quote_ident
from cdc.postgres import connect
from cdc.settings import Settings
from cdc.sqlstate import translated

_PG17: Final = 170_000
_PRIMARY: Final = """
SELECT (SELECT s.failover FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s),
       current_setting('synchronized_standby_slots'),
       ARRAY(SELECT slot_name::text FROM pg_catalog.pg_replication_slots WHERE slot_type = 'physical' AND active)
"""
_STANDBY: Final = """
SELECT pg_catalog.pg_is_in_recovery(), current_setting('sync_replication_slots')::bool,
       current_setting('hot_standby_feedback')::bool, current_setting('primary_slot_name'),
       current_setting('wal_level'),
       (SELECT s.synced AND NOT s.temporary AND s.invalidation_reason IS NULL
        FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s)
"""


@dataclass(frozen=True, slots=True)
class PrimaryFacts:
    """`failover` of our slot (None: no slot yet); the slots that logical readers wait for; standbys' slots."""

    failover: bool | None
    waits_for: str
    physical_slots: list[str]


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """What slot synchronisation needs; `is_synced` is None where the slot is not there."""

    is_standby: bool
    syncs: bool
    feedback: bool
    primary_slot: str
    wal_level: str
    is_synced: bool | None


def look_at_failover(connection: psycopg.Connection[Any], settings: Settings, *, is_standby: bool) -> list[Finding]:
    """Findings; none where failover is switched off, not known to the server, or the source is a standby itself."""
    if not settings.source.failover or connection.info.server_version < _PG17 or is_standby:
        return []
    with translated():
        row = connection.execute(_PRIMARY, [settings.slot]).fetchone()
    assert row is not None
    found = list(primary_findings(PrimaryFacts(*row), settings.slot))
    for address in settings.source.standbys:
        found += _look_at_standby(address, settings)
    return found


def _look_at_standby(address: str, settings: Settings) -> list[Finding]:
    host, _, port = address.rpartition(":")
    there = settings.source.model_copy(update={"host": host, "port": int(port)})
    try:
        with connect(there, settings.source.read, application="afterimage check") as connection, translated():
            row = connection.execute(_STANDBY, [settings.slot]).fetchone()
    except CdcError as error:
        return [
            warning("FAILOVER_NOT_READY", f"the standby {address} cannot be asked: {error.message}", error.hint or "")
        ]
    assert row is not None
    return list(standby_findings(address, StandbyFacts(*row), settings.slot))


def primary_findings(facts: PrimaryFacts, slot: str) -> Iterator[Finding]:
    """What is missing on the primary."""
    if facts.failover is False:
        yield warning(
            "FAILOVER_OFF",
            f"the slot {slot} is not a failover slot: no standby keeps a copy of it",
            "stop capture, then on a replication connection (psql 'dbname=.. replication=database'): "
            f"ALTER_REPLICATION_SLOT {quote_ident(slot)} (FAILOVER true)",
        )
    if facts.physical_slots and not facts.waits_for.strip():
        names = ", ".join(facts.physical_slots)
        yield warning(
            "FAILOVER_AHEAD",
            f"capture may be ahead of the standbys ({names}): a failover could lose what the topics have already",
            f"ALTER SYSTEM SET synchronized_standby_slots = '{names}', then SELECT pg_reload_conf()",
        )


def standby_findings(address: str, facts: StandbyFacts, slot: str) -> Iterator[Finding]:
    """What is missing on a standby."""
    if not facts.is_standby:
        yield critical(
            "FAILOVER_NOT_READY",
            f"{address} is no standby",
            "take it out of source.standbys, or is it the new primary?",
        )
        return
    wanted = {
        "sync_replication_slots = on": facts.syncs,
        "hot_standby_feedback = on": facts.feedback,
        "primary_slot_name = '<its physical slot>'": bool(facts.primary_slot),
        "wal_level = logical": facts.wal_level == "logical",
    }
    missing = [setting for setting, is_right in wanted.items() if not is_right]
    if missing:
        statements = "; ".join(f"ALTER SYSTEM SET {setting}" for setting in missing)
        yield warning(
            "FAILOVER_NOT_READY",
            f"the standby {address} does not keep a copy of the slot: {', '.join(missing)} is missing there",
            f"on {address}: {statements}; then SELECT pg_reload_conf() (wal_level: restart)",
        )
    elif not facts.is_synced:
        yield warning(
            "FAILOVER_NOT_READY",
            f"the standby {address} has no usable copy of the slot {slot} yet",
            "wait a moment; if it stays so: primary_conninfo there needs a dbname, and see the standby's log",
        )
    else:
        yield ok("FAILOVER", f"the standby {address} keeps a copy of the slot {slot}")
