"""The pipeline's replication slot: whether it can still be read, by whom it is, and how much WAL it keeps.

In: a connection of the stream role (it may see who holds its slot). Out: findings; an absent slot is right before the
first capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.check.finding import Finding, critical, ok, warning
from cdc.names import quote_literal
from cdc.settings import Settings
from cdc.sqlstate import translated

_PLUGIN: Final = "pgoutput"
_SLOT: Final = """
SELECT to_jsonb(s), a.application_name, host(a.client_addr),
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL
            ELSE pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn)::int8 END
FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A slot as pg_replication_slots shows it; `invalidation` is why it was given up, from 17 on."""

    name: str
    plugin: str | None
    database: str | None
    wal_status: str | None
    invalidation: str | None
    active_pid: int | None
    application: str | None
    client: str | None
    kept_bytes: int | None


def slot_facts(connection: psycopg.Connection[Any], name: str) -> SlotFacts | None:
    """The slot, or None."""
    with translated():
        row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    slot, application, client, kept_bytes = row
    return SlotFacts(
        name,
        slot["plugin"],
        slot["database"],
        slot["wal_status"],
        slot.get("invalidation_reason"),
        slot["active_pid"],
        application,
        client,
        kept_bytes,
    )


def findings_of(facts: SlotFacts | None, settings: Settings) -> Iterator[Finding]:
    """What follows from the facts."""
    if facts is None:
        yield ok("SLOT", f"the slot {settings.slot} is not there yet: the first capture makes it")
        return
    wrong = [*_other(facts, settings), *_lost(facts), *_held(facts, settings), *_kept(facts, settings)]
    reader = f", read by pid {facts.active_pid}" if facts.active_pid else ""
    yield from wrong or [ok("SLOT", f"the slot {facts.name} keeps {_size(facts.kept_bytes or 0)} of WAL{reader}")]


def _other(facts: SlotFacts, settings: Settings) -> Iterator[Finding]:
    if facts.plugin != _PLUGIN or facts.database != settings.source.database:
        kind = f"plugin {facts.plugin}, database {facts.database}" if facts.plugin else "a physical one"
        yield critical(
            "SLOT_OTHER",
            f"the slot {facts.name} is not this pipeline's ({kind})",
            "set source.slot to a name of its own",
        )


def _lost(facts: SlotFacts) -> Iterator[Finding]:
    drop = f"SELECT pg_drop_replication_slot({quote_literal(facts.name)})"
    if facts.wal_status == "lost" or facts.invalidation:
        yield critical(
            "SLOT_LOST",
            f"Postgres has given up the slot {facts.name} ({facts.invalidation or 'its WAL was removed'}): "
            "changes are missing from here on",
            f"{drop}; raise max_slot_wal_keep_size; then capture anew with a snapshot",
        )
    elif facts.wal_status == "unreserved":
        yield critical(
            "SLOT_AT_RISK",
            f"the WAL that the slot {facts.name} needs may be removed at the next checkpoint",
            "start capture now, and raise max_slot_wal_keep_size",
        )


def _held(facts: SlotFacts, settings: Settings) -> Iterator[Finding]:
    is_ours = (facts.application or "").startswith(f"afterimage {settings.pipeline}")
    if facts.active_pid is not None and not is_ours:
        who = f"{facts.application or 'another program'} at {facts.client or 'a socket'}"
        yield critical(
            "SLOT_IN_USE",
            f"the slot {facts.name} is being read by {who} (pid {facts.active_pid})",
            f"stop that program, or SELECT pg_terminate_backend({facts.active_pid}); or choose another source.slot",
        )


def _kept(facts: SlotFacts, settings: Settings) -> Iterator[Finding]:
    if facts.kept_bytes is not None and facts.kept_bytes > settings.source.wal_kept_warning_bytes:
        yield warning(
            "WAL_KEPT",
            f"the slot {facts.name} keeps {_size(facts.kept_bytes)} of WAL on the server",
            "start capture if it is down; a long transaction on the server also keeps WAL (see pg_stat_activity)",
        )


def _size(number: int) -> str:
    size = float(number)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"
