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
from cdc.retention import Danger, Level, Retention, judge
from cdc.settings import Settings
from cdc.sizes import size_text
from cdc.slots import read_retention
from cdc.sqlstate import translated

_PLUGIN: Final = "pgoutput"
_SLOT: Final = """
SELECT s.plugin, s.database, s.active_pid, a.application_name, host(a.client_addr)
FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s
"""


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A slot as pg_replication_slots shows it, and who reads it."""

    name: str
    plugin: str | None
    database: str | None
    active_pid: int | None
    application: str | None
    client: str | None
    retention: Retention


def slot_facts(connection: psycopg.Connection[Any], name: str) -> SlotFacts | None:
    """The slot, or None."""
    with translated():
        row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    plugin, database, pid, application, client = row
    return SlotFacts(name, plugin, database, pid, application, client, read_retention(connection, name))


def findings_of(facts: SlotFacts | None, settings: Settings) -> Iterator[Finding]:
    """What follows from the facts."""
    if facts is None:
        yield ok("SLOT", f"the slot {settings.slot} is not there yet: the first capture makes it")
        return
    danger = judge(facts.retention, settings.source.wal_bounds, facts.name)
    wrong = [*_other(facts, settings), *_held(facts, settings), *_endangered(danger)]
    reader = f", read by pid {facts.active_pid}" if facts.active_pid else ""
    kept = size_text(facts.retention.kept_bytes or 0)
    yield from wrong or [ok("SLOT", f"the slot {facts.name} keeps {kept} of WAL{reader}")]


def _other(facts: SlotFacts, settings: Settings) -> Iterator[Finding]:
    if facts.plugin != _PLUGIN or facts.database != settings.source.database:
        kind = f"plugin {facts.plugin}, database {facts.database}" if facts.plugin else "a physical one"
        yield critical(
            "SLOT_OTHER",
            f"the slot {facts.name} is not this pipeline's ({kind})",
            "set source.slot to a name of its own",
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


def _endangered(danger: Danger) -> Iterator[Finding]:
    if danger.level is Level.WARNING:
        yield warning(danger.code, danger.message, danger.remedy)
    elif danger.level is not Level.SAFE:
        yield critical(danger.code, danger.message, danger.remedy)
