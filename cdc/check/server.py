"""Whether the Postgres server is set up for logical replication, with room for this pipeline.

In: one connection of either role. Out: findings. Reads settings and counts only, which every role may.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.check.finding import Finding, critical, ok, warning
from cdc.sqlstate import translated

OLDEST: Final = 140_000
_DECODES_ON_STANDBY: Final = 160_000
_NEEDED: Final = 2
"""Slots and walsenders: one for capture, and a short-lived one for `prove`."""

_FACTS: Final = """
SELECT current_setting('server_version'), current_setting('wal_level'), pg_catalog.pg_is_in_recovery(),
       current_setting('server_encoding'), current_setting('max_slot_wal_keep_size'),
       coalesce(current_setting('idle_replication_slot_timeout', true), '0'),
       current_setting('max_replication_slots')::int, current_setting('max_wal_senders')::int,
       (SELECT count(*)::int FROM pg_catalog.pg_replication_slots),
       (SELECT count(*)::int FROM pg_catalog.pg_stat_replication),
       (SELECT count(*)::int FROM pg_catalog.pg_replication_slots WHERE slot_name = %(slot)s),
       (SELECT count(*)::int FROM pg_catalog.pg_replication_slots WHERE slot_name = %(slot)s AND active),
       current_setting('hot_standby_feedback')::bool, current_setting('primary_slot_name')
"""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server says of itself."""

    version: str
    wal_level: str
    is_standby: bool
    encoding: str
    wal_keep: str
    idle_slot_timeout: str
    slots_max: int
    senders_max: int
    slots: int
    senders: int
    own_slots: int
    own_senders: int
    feedback: bool = True
    primary_slot: str = ""


def server_facts(connection: psycopg.Connection[Any], slot: str) -> ServerFacts:
    """Ask the server."""
    with translated():
        row = connection.execute(_FACTS, {"slot": slot}).fetchone()
    assert row is not None
    return ServerFacts(*row)


def findings_of(facts: ServerFacts, server_version: int) -> Iterator[Finding]:
    """What follows from the facts."""
    wrong = [*_replication(facts, server_version), *_room(facts), *_retention(facts)]
    yield from wrong or [_right(facts)]


def _right(facts: ServerFacts) -> Finding:
    standby = ", a standby" if facts.is_standby else ""
    return ok("SERVER", f"Postgres {facts.version}, wal_level {facts.wal_level}{standby}")


def _replication(facts: ServerFacts, server_version: int) -> Iterator[Finding]:
    if server_version < OLDEST:
        yield critical("SERVER_VERSION", f"Postgres {facts.version} is too old", "upgrade to Postgres 14 or newer")
    if facts.is_standby and server_version < _DECODES_ON_STANDBY:
        yield critical("STANDBY", "a standby before 16 cannot decode its log", "set source.host to the primary")
    elif facts.is_standby and not (facts.feedback and facts.primary_slot):
        yield warning(
            "STANDBY_FEEDBACK",
            "this standby does not hold back what the slot needs: vacuum on the primary can make the slot useless",
            "there: ALTER SYSTEM SET hot_standby_feedback = on, and primary_slot_name to a slot of its primary",
        )
    if facts.wal_level != "logical":
        yield critical(
            "WAL_LEVEL",
            f"wal_level is {facts.wal_level}, so the log lacks what decoding needs",
            "ALTER SYSTEM SET wal_level = 'logical', then restart Postgres",
        )
    if facts.encoding == "SQL_ASCII":
        yield warning(
            "ENCODING",
            "the database's encoding is SQL_ASCII: a text that is not UTF-8 would stop capture",
            "recreate the database with ENCODING 'UTF8', or make sure that it holds UTF-8 only",
        )
    elif facts.encoding != "UTF8":
        yield warning(
            "ENCODING",
            f"the database's encoding is {facts.encoding}, and views take texts as UTF-8: md5, octet_length and "
            'the order by COLLATE "C" of a text beyond ASCII may differ from what Postgres says',
            "keep these out of views (`afterimage prove` tells where they differ), or recreate the database with UTF8",
        )


def _room(facts: ServerFacts) -> Iterator[Finding]:
    others, others_sending = facts.slots - facts.own_slots, facts.senders - facts.own_senders
    if others + _NEEDED > facts.slots_max:
        yield _full("max_replication_slots", facts.slots_max, others)
    if others_sending + _NEEDED > facts.senders_max:
        yield _full("max_wal_senders", facts.senders_max, others_sending)


def _full(setting: str, maximum: int, used: int) -> Finding:
    return critical(
        "NO_ROOM",
        f"{setting} is {maximum} and others use {used}; {_NEEDED} are needed, one for capture and one for prove",
        f"ALTER SYSTEM SET {setting} = {used + 2 * _NEEDED}, then restart Postgres; or drop slots that nobody reads",
    )


def _retention(facts: ServerFacts) -> Iterator[Finding]:
    if facts.wal_keep == "-1":
        yield warning(
            "WAL_UNLIMITED",
            "max_slot_wal_keep_size is unlimited: while capture is down, its slot can fill the server's disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB' (what the disk can spare), then SELECT pg_reload_conf()",
        )
    if facts.idle_slot_timeout not in ("0", "0min", "0s"):
        yield warning(
            "SLOT_TIMEOUT",
            f"idle_replication_slot_timeout is {facts.idle_slot_timeout}: a capture that is down longer loses its slot",
            "ALTER SYSTEM SET idle_replication_slot_timeout = 0, then SELECT pg_reload_conf()",
        )
