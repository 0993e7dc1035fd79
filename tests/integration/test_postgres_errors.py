"""What Postgres refuses becomes one error with its code, kind and remedy, and never a secret or a row's value."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from psycopg import sql

from cdc.errors import ConfigError, OperatorError, TransientError
from cdc.postgres import SESSION, connect, conninfo
from cdc.replication import ReplicationConnection
from cdc.settings import Role, Source
from cdc.sqlstate import translated
from cdc.stack.postgres import Postgres
from tests.support.servers import PostgresServer


def refused(source, role):
    with pytest.raises((ConfigError, OperatorError, TransientError)) as raised:
        connect(source, role).close()
    return raised.value


def changed(settings, **changes):
    return settings.source.model_copy(update=changes)


def test_a_wrong_and_a_missing_password(source):
    user = source.source.read.user
    for role in (Role(user=user, password="canary-1"), Role(user=user)):
        error = refused(source.source, role)
        assert (type(error), error.code) == (OperatorError, "PASSWORD")
        assert "source.read.password_file" in error.hint
        assert "canary" not in f"{error.message}{error.hint}{error.__cause__}"


def test_an_unknown_database(source):
    error = refused(changed(source, database="no such"), source.source.read)
    assert (type(error), error.code) == (OperatorError, "NO_DATABASE")
    assert "source.database" in error.hint


def test_a_role_that_may_not_log_in(source, admin):
    admin.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(source.source.stream.user)))
    error = refused(source.source, source.source.stream)
    assert (type(error), error.code) == (OperatorError, "LOGIN")
    assert f'ALTER ROLE "{source.source.stream.user}" LOGIN' in error.hint


def test_no_right_to_connect(source, admin):
    database = sql.Identifier(source.source.database)
    admin.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(database))
    error = refused(source.source, source.source.read)
    assert (type(error), error.code) == (OperatorError, "NO_DATABASE")


def test_a_server_that_is_away(source):
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        error = refused(changed(source, port=unused.getsockname()[1]), source.source.read)
    assert (type(error), error.code) == (TransientError, "POSTGRES_UNAVAILABLE")
    error = refused(changed(source, host="nowhere.invalid"), source.source.read)
    assert (type(error), error.code) == (TransientError, "POSTGRES_UNAVAILABLE")


def test_tls_that_the_server_has_not(source):
    assert refused(changed(source, sslmode="require"), source.source.read).code == "TLS"


def test_a_role_without_replication(source):
    with pytest.raises(OperatorError) as raised:
        ReplicationConnection(source.source, source.source.read)
    assert raised.value.code == "NO_REPLICATION"


def test_no_entry_in_pg_hba_and_no_connection_left(private_server):
    server = private_server(Postgres, settings={"max_connections": "5", "superuser_reserved_connections": "0"})
    database = PostgresServer(server.endpoint).database()
    role = Role(user=database.user, password=database.password)
    source = Source(
        host=database.host,
        port=database.port,
        database=database.dbname,
        tables=("public.*",),
        read=role,
        sslmode="disable",
    )
    with database.connect() as admin:
        hba = admin.execute("SHOW hba_file").fetchone()[0]
        taken = [database.connect() for _ in range(4)]
        error = refused(source, role)
        assert (type(error), error.code) == (TransientError, "POSTGRES_UNAVAILABLE")
        for connection in taken:
            connection.close()
        with open(hba, "w") as file:  # noqa: PTH123
            file.write("host all nobody_else 127.0.0.1/32 scram-sha-256\n")
        admin.execute("SELECT pg_reload_conf()")
    error = refused(source, role)
    assert (type(error), error.code) == (OperatorError, "PG_HBA")
    assert 'host "postgres" "postgres"' in error.hint


@pytest.mark.parametrize(
    ("statement", "kind", "code"),
    [
        ("SELECT * FROM public.secrets", OperatorError, "PRIVILEGE"),
        ("SELECT 'canary'::int", OperatorError, "POSTGRES"),
        ("DO $$ BEGIN RAISE 'canary'; END $$", OperatorError, "POSTGRES"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", TransientError, "POSTGRES_UNAVAILABLE"),
        ("SELECT pg_drop_replication_slot('absent')", OperatorError, "PRIVILEGE"),
        ("SET statement_timeout = 1; SELECT pg_sleep(5)", TransientError, "POSTGRES_UNAVAILABLE"),
    ],
)
def test_what_a_statement_meets(source, statement, kind, code):
    with connect(source.source, source.source.read) as session:
        with pytest.raises(kind) as raised, translated():
            session.execute(statement)
        assert raised.value.code == code
        assert "canary" not in raised.value.message
        if code == "POSTGRES_UNAVAILABLE" and session.closed:
            with pytest.raises(TransientError), translated():
                session.execute("SELECT 1")


def test_the_session_is_as_formats_say(source):
    with connect(source.source, source.source.read, application="afterimage test") as session:
        shown = {name: session.execute(f"SHOW {name}").fetchone()[0].replace(", ", ",") for name in SESSION}
        assert shown == {**SESSION, "row_security": "off"}
        assert session.execute("SHOW application_name").fetchone() == ("afterimage test",)


def test_a_password_file_is_read_anew(source, tmp_path):
    file = tmp_path / "password"
    role = Role(user=source.source.read.user, password_file=file)
    error = refused(source.source, role)
    assert (type(error), error.code) == (ConfigError, "PASSWORD_FILE")
    file.write_text(source.source.read.secret() + "\n")
    connect(source.source, role).close()
    assert "replication=database" in conninfo(source.source, role, replication=True)
