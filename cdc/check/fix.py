"""`check --fix`: makes the two roles, their privileges and the publication what the configuration says.

In: settings with source.admin. Out: what was done, in words; nothing when all was right. Invariant: no password reaches
the server in clear, no superuser is altered, no table is published that its writers could then not update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from cdc.catalog import load_relations
from cdc.changes import Relation
from cdc.check.publication import Publication, findings_of, options, read_publication
from cdc.check.tables import blocking, table_facts
from cdc.errors import CdcError, ConfigError, OperatorError
from cdc.postgres import connect
from cdc.settings import Role, Settings, Source
from cdc.sqlstate import translated

Connection = psycopg.Connection[Any]


def fix(settings: Settings, *, passwords: bool = True) -> list[str]:
    """Put right what can be put right without harming anybody; safe to repeat.

    Without `passwords` a role that is there keeps its own: others may use it, and the configured one may be wrong.
    """
    source = settings.source
    if source.admin is None:
        raise ConfigError(
            "`check --fix` needs a role that may create roles and publications",
            "set source.admin.user and source.admin.password_file (a superuser, or the tables' owner with CREATEROLE)",
        )
    with connect(source, source.admin, application="afterimage fix") as connection:
        _require_primary(connection)
        relations = load_relations(connection, source.tables, source.exclude)
        followed = [facts.relation for facts in table_facts(connection, relations) if blocking(facts) is None]
        if not followed:
            raise OperatorError("none of the tables in source.tables can be captured", "run: afterimage check")
        with translated(), connection.transaction():
            return [
                *_role(connection, source, source.stream, replication=True, password=passwords),
                *_role(connection, source, source.read, replication=False, password=passwords),
                *_privileges(connection, source, followed),
                *_publication(connection, settings.publication, followed),
            ]


def _require_primary(connection: Connection) -> None:
    if connection.info.parameter_status("in_hot_standby") == "on":
        raise OperatorError(
            "the server is a standby: roles, privileges and the publication can only be made on its primary",
            "run `check --fix` with source.host pointing to the primary; what it makes reaches the standby by itself",
            code="STANDBY",
        )


def _role(connection: Connection, source: Source, role: Role, *, replication: bool, password: bool) -> Iterator[str]:
    row = connection.execute(
        "SELECT rolcanlogin, rolreplication, rolsuper FROM pg_catalog.pg_roles WHERE rolname = %s", [role.user]
    ).fetchone()
    wanted = [("LOGIN", row is not None and row[0])]
    if replication:
        wanted.append(("REPLICATION", row is not None and row[1]))
    if row is None:
        _alter(connection, "CREATE", role, [*(name for name, _ in wanted), *_password(connection, role)])
        yield f"created role {role.user} with {' '.join(name for name, _ in wanted)}"
        return
    if row[2]:  # a superuser may do all this already, and is not ours to change
        return
    if missing := [name for name, is_there in wanted if not is_there]:
        _alter(connection, "ALTER", role, missing)
        yield f"gave role {role.user} {' '.join(missing)}"
    if password and _password_is_wrong(source, role):
        _alter(connection, "ALTER", role, _password(connection, role))
        yield f"set the password of role {role.user} to the configured one"


def _alter(connection: Connection, verb: str, role: Role, clauses: Sequence[str | sql.Composable]) -> None:
    parts = [part if isinstance(part, sql.Composable) else sql.SQL(part) for part in clauses]
    statement = sql.SQL("{} ROLE {} {}").format(sql.SQL(verb), sql.Identifier(role.user), sql.SQL(" ").join(parts))
    connection.execute(statement)


def _password(connection: Connection, role: Role) -> list[sql.Composable]:
    """The PASSWORD clause with a SCRAM verifier made here: statements end up in the server's log."""
    secret = role.secret()
    if secret is None:
        return []
    verifier = connection.pgconn.encrypt_password(secret.encode(), role.user.encode(), b"scram-sha-256")
    return [sql.SQL("PASSWORD {}").format(sql.Literal(verifier.decode()))]


def _password_is_wrong(source: Source, role: Role) -> bool:
    if role.secret() is None:
        return False
    try:
        connect(source, role, application="afterimage fix").close()
    except CdcError as error:
        return error.code == "PASSWORD"  # anything else is not mended by a password; `check` names it
    return False


def _privileges(connection: Connection, source: Source, relations: Sequence[Relation]) -> Iterator[str]:
    read, stream = source.read.user, source.stream.user
    database = sql.SQL("CONNECT ON DATABASE {}").format(sql.Identifier(source.database))
    for user in (stream, read):
        if not _has(connection, "has_database_privilege(%s, current_database(), 'CONNECT')", user):
            yield _grant(connection, database, user)
    for schema in sorted({relation.schema for relation in relations}):
        if not _has(connection, "has_schema_privilege(%s, %s, 'USAGE')", read, schema):
            yield _grant(connection, sql.SQL("USAGE ON SCHEMA {}").format(sql.Identifier(schema)), read)
    for relation in relations:
        if not _has(connection, "has_table_privilege(%s, %s::oid, 'SELECT')", read, relation.oid):
            yield _grant(connection, sql.SQL("SELECT ON TABLE {}").format(_table(relation)), read)


def _has(connection: Connection, question: str, *arguments: str | int) -> bool:
    row = connection.execute(f"SELECT {question}", arguments).fetchone()
    return row is not None and bool(row[0])


def _grant(connection: Connection, privilege: sql.Composed, user: str) -> str:
    connection.execute(sql.SQL("GRANT {} TO {}").format(privilege, sql.Identifier(user)))
    return f"granted {privilege.as_string(connection)} to {user}"


def _publication(connection: Connection, name: str, relations: Sequence[Relation]) -> Iterator[str]:
    found = read_publication(connection, name)
    with_options = sql.SQL(options(connection.info.server_version))
    if found is None:
        connection.execute(
            sql.SQL("CREATE PUBLICATION {} {} WITH ({})").format(
                sql.Identifier(name), sql.SQL("FOR TABLE {}").format(_only(relations)), with_options
            )
        )
        yield f"created publication {name} for {_listed(relations)}"
        return
    wrong = {finding.code for finding in findings_of(name, found, relations) if finding.remedy}
    if not wrong or "PUBLICATION_ALL_TABLES" in wrong:
        return
    connection.execute(sql.SQL("ALTER PUBLICATION {} SET ({})").format(sql.Identifier(name), with_options))
    connection.execute(sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(sql.Identifier(name), _only(relations)))
    yield from _changed(found, relations, wrong)


def _changed(found: Publication, relations: Sequence[Relation], wrong: set[str]) -> Iterator[str]:
    before, after = {member.oid for member in found.members}, {relation.oid for relation in relations}
    if added := [relation for relation in relations if relation.oid not in before]:
        yield f"added {_listed(added)} to publication {found.name}"
    if dropped := [member.qualified for member in found.members if member.oid not in after]:
        yield f"dropped {', '.join(dropped)} from publication {found.name}"
    if wrong - {"PUBLICATION_LACKS", "PUBLICATION_EXTRA"}:
        yield f"set publication {found.name} to publish whole rows, all operations, and partitions as their root"


def _only(relations: Sequence[Relation]) -> sql.Composed:
    # ONLY: inheriting tables are captured when they are named themselves.
    return sql.SQL(", ").join(sql.SQL("ONLY {}").format(_table(relation)) for relation in relations)


def _table(relation: Relation) -> sql.Identifier:
    return sql.Identifier(relation.schema, relation.name)


def _listed(relations: Sequence[Relation]) -> str:
    return ", ".join(relation.qualified for relation in relations)
