"""Everything about Postgres that `check` looks at, with the two roles that capture uses and nothing more.

In: settings. Out: findings, and the relations that can be captured. A role that cannot log in is one finding; what the
other can see is still looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import psycopg

from cdc.catalog import Table, Unfit, all_tables, load_relations, match_tables
from cdc.changes import Relation
from cdc.check import failover, publication, server, slot, tables
from cdc.check.finding import Finding, critical, of_error, ok, warning
from cdc.errors import CdcError, ConfigError
from cdc.names import quote_ident
from cdc.nearest import suggestion
from cdc.postgres import connect
from cdc.privacy import Privacy
from cdc.replication import ReplicationConnection
from cdc.settings import Role, Settings, Source
from cdc.sqlstate import translated
from cdc.table_patterns import parse_all

Connection = psycopg.Connection[Any]


def look_at_source(settings: Settings) -> tuple[list[Finding], list[Relation]]:
    """Look at the server, the roles, the slot, the tables and the publication."""
    source = settings.source
    refused: list[tuple[Role, CdcError]] = []
    with ExitStack() as opened:
        stream = _log_in(opened, source, source.stream, refused)
        read = _log_in(opened, source, source.read, refused)
        session = read or stream
        found = list(dict.fromkeys(_refusal(session, role, error) for role, error in refused))
        if session is None:
            return found, []
        facts = server.server_facts(session, settings.slot)
        found += server.findings_of(facts, session.info.server_version)
        found += failover.look_at_failover(session, settings, is_standby=facts.is_standby)
        found += _roles(session, source)
        if stream is not None:
            found += _replication(source)
            found += slot.findings_of(slot.slot_facts(stream, settings.slot), settings)
            found += _timeouts(stream, source.stream)
        relations = _captured(session, settings, found)
        if read is not None:
            found += _timeouts(read, source.read)
            found += _privileges(read, source.read, relations)
        return found, relations


def _log_in(opened: ExitStack, source: Source, role: Role, refused: list[tuple[Role, CdcError]]) -> Connection | None:
    try:
        return opened.enter_context(connect(source, role, application="afterimage check"))
    except CdcError as error:
        refused.append((role, error))
        return None


def _refusal(session: Connection | None, role: Role, error: CdcError) -> Finding:
    """Postgres hides whether the role or the password is wrong; the role that got in can see which."""
    if error.code == "PASSWORD" and session is not None:
        question = "SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %s"
        with translated():
            is_there = session.execute(question, [role.user]).fetchone()
        if is_there is None:
            return critical("NO_ROLE", f"the role {role.user} does not exist", "run: afterimage check --fix")
    return of_error(error)


def _roles(session: Connection, source: Source) -> Iterator[Finding]:
    with translated():
        rows = session.execute(
            "SELECT rolname, rolsuper, rolreplication FROM pg_catalog.pg_roles WHERE rolname = ANY (%s)",
            [[source.stream.user, source.read.user]],
        ).fetchall()
    for user, is_superuser, replicates in rows:
        if is_superuser:
            yield warning(
                "SUPERUSER",
                f"the role {user} is a superuser, which is more than capture needs",
                f"ALTER ROLE {quote_ident(user)} NOSUPERUSER, then run: afterimage check --fix",
            )
        elif user == source.read.user and replicates:
            yield warning(
                "READ_REPLICATES",
                f"the role {user} has REPLICATION, so it can read the whole cluster",
                f"ALTER ROLE {quote_ident(user)} NOREPLICATION",
            )


def _replication(source: Source) -> Iterator[Finding]:
    """Logging in as a walsender: an attribute, a group or pg_hba may be in the way, so it is tried."""
    try:
        connection = ReplicationConnection(source, source.stream, application="afterimage check")
    except CdcError as error:
        yield of_error(error)
    else:
        connection.close()
        yield ok("ROLES", f"{source.stream.user} may replicate")


def _timeouts(session: Connection, role: Role) -> Iterator[Finding]:
    # The other timeouts are overruled by the connection (cdc/postgres.py); older servers do not know this one.
    with translated():
        row = session.execute("SELECT current_setting('transaction_timeout', true)").fetchone()
    if row is not None and row[0] not in (None, "0"):
        yield warning(
            "ROLE_TIMEOUT",
            f"transaction_timeout is {row[0]} for {role.user}: snapshots and large transactions would be cut off",
            f"ALTER ROLE {quote_ident(role.user)} SET transaction_timeout = 0",
        )


def _captured(session: Connection, settings: Settings, found: list[Finding]) -> list[Relation]:
    """What of source.tables can be captured, and what stands in the way of the rest."""
    source = settings.source
    try:
        relations = load_relations(session, source.tables, source.exclude)
        Privacy.of(source).require_fits(relations)
    except ConfigError as error:
        found.append(of_error(error))
        return []
    version = session.info.server_version
    facts = tables.table_facts(session, relations)
    for each in facts:
        # What a policy hides is told for the role of the session.
        read_role = source.read.user if session.info.user == source.read.user else None
        found += tables.findings_of(each, server_version=version, read_role=read_role)
    found += _passed_over(match_tables(session, source.tables, source.exclude)[1])
    found += _unknown_excludes(session, source)
    found += _unknown_histories(relations, settings.history.tables)
    captured = [each.relation for each in facts if tables.blocking(each) is None]
    found.append(ok("TABLES", f"{len(captured)} of {len(relations)} matching tables can be captured"))
    published = publication.read_publication(session, settings.publication)
    found += publication.findings_of(settings.publication, published, captured)
    return captured


def _passed_over(matched: Sequence[Table]) -> Iterator[Finding]:
    for table in matched:
        if table.unfit in (Unfit.UNLOGGED, Unfit.FOREIGN, Unfit.TEMPORARY):
            yield warning(
                "NOT_CAPTURED",
                f"{table.schema}.{table.name} is {table.unfit.value}: its changes are not in the log",
                f"add {table.text} to source.exclude to silence this",
            )


def _unknown_excludes(session: Connection, source: Source) -> Iterator[Finding]:
    present = all_tables(session)
    for pattern in parse_all(source.exclude):
        if not any(pattern.matches(table.schema, table.name) for table in present):
            yield warning(
                "UNKNOWN_EXCLUDE",
                f"source.exclude: no table matches {pattern.text}, so it keeps nothing out",
                suggestion(pattern.text, [table.text for table in present], what="tables"),
            )


def _unknown_histories(relations: Sequence[Relation], patterns: Sequence[str]) -> Iterator[Finding]:
    for pattern in parse_all(patterns):
        if not any(pattern.matches(relation.schema, relation.name) for relation in relations):
            yield warning(
                "UNKNOWN_HISTORY",
                f"history.tables: no captured table matches {pattern.text}, so nothing is kept for it",
                suggestion(pattern.text, [relation.qualified for relation in relations], what="tables"),
            )


def _privileges(read: Connection, role: Role, relations: Sequence[Relation]) -> Iterator[Finding]:
    user = quote_ident(role.user)
    with translated():
        rows = read.execute(
            "SELECT n.nspname, c.relname, pg_catalog.has_schema_privilege(n.oid, 'USAGE'), "
            "pg_catalog.has_table_privilege(c.oid, 'SELECT') "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = ANY (%s::oid[]) ORDER BY 1, 2",
            [[relation.oid for relation in relations]],
        ).fetchall()
    for schema in sorted({schema for schema, _, may_use, _ in rows if not may_use}):
        grant = f"GRANT USAGE ON SCHEMA {quote_ident(schema)} TO {user}"
        yield critical("PRIVILEGE", f"{role.user} may not use schema {schema}", f"{grant}, or run: check --fix")
    for schema, name, _, may_select in rows:
        if not may_select:
            grant = f"GRANT SELECT ON {quote_ident(schema)}.{quote_ident(name)} TO {user}"
            yield critical("PRIVILEGE", f"{role.user} may not read {schema}.{name}", f"{grant}, or run: check --fix")
