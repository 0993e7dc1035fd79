"""`check --fix` on a real server: what it makes, that it may be repeated, and that what it makes suffices."""

from __future__ import annotations

import pytest
from psycopg import sql

from cdc.check.fix import fix
from cdc.check.publication import read_publication
from cdc.errors import ConfigError, OperatorError
from cdc.postgres import connect
from cdc.replication import ReplicationConnection
from cdc.settings import Role
from tests.support.postgres_version import MAJOR
from tests.support.source import HOSTILE_SCHEMA, HOSTILE_TABLE


def test_everything_is_made_once(bare_source):
    done = fix(bare_source)
    assert [line.split()[0] for line in done].count("created") == 3
    assert any(HOSTILE_TABLE in line for line in done)
    assert fix(bare_source) == []


def test_passwords_are_neither_told_nor_sent(bare_source, admin):
    done = "\n".join(fix(bare_source))
    for role in (bare_source.source.stream, bare_source.source.read):
        assert role.secret() not in done
        stored = admin.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", [role.user]).fetchone()[0]
        assert stored.startswith("SCRAM-SHA-256$")


def test_roles_have_no_more_than_they_need(source, admin):
    attributes = dict(
        admin.execute(
            "SELECT rolname, ARRAY[rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls] FROM pg_roles "
            "WHERE rolname = ANY (%s)",
            [[source.source.stream.user, source.source.read.user]],
        ).fetchall()
    )
    assert attributes[source.source.stream.user] == [False, False, False, True, False]
    assert attributes[source.source.read.user] == [False, False, False, False, False]
    granted = admin.execute(
        "SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants "
        "WHERE grantee = ANY (%s) ORDER BY table_name",
        [[source.source.stream.user, source.source.read.user]],
    ).fetchall()
    read = source.source.read.user
    expected = [HOSTILE_TABLE, "documents", "events", "order_items", "orders"]
    assert granted == [(read, name, "SELECT") for name in expected]


def test_the_stream_role_can_stream_and_cannot_read(source, admin):
    """pgoutput looks into the catalogue alone: REPLICATION is all it takes."""
    table = sql.Identifier(HOSTILE_SCHEMA, HOSTILE_TABLE)
    connection = ReplicationConnection(source.source, source.source.stream)
    try:
        slot = connection.create_slot(source.slot)
        admin.execute(sql.SQL("INSERT INTO {} VALUES ('k', 1, 'canary', NULL)").format(table))
        connection.start(source.slot, source.publication, slot.consistent_lsn)
        frames: list[bytes] = []
        while not any(b"canary" in frame for frame in frames):
            frames += connection.read(5)[0]
    finally:
        connection.close()
    with connect(source.source, source.source.stream) as session, pytest.raises(Exception, match="permission denied"):
        session.execute("SELECT * FROM public.orders")


def test_the_read_role_reads_what_is_captured_and_nothing_else(source):
    with connect(source.source, source.source.read) as session:
        table = sql.Identifier(HOSTILE_SCHEMA, HOSTILE_TABLE)
        assert session.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone() == (0,)
        assert session.execute("SELECT count(*) FROM public.events").fetchone() == (0,)
        with pytest.raises(Exception, match="permission denied"):
            session.execute("SELECT * FROM public.secrets")


def test_the_publication_follows_the_configuration(source, admin):
    admin.execute("CREATE TABLE public.added (id int PRIMARY KEY)")
    fewer = source.model_copy(
        update={"source": source.source.model_copy(update={"tables": ("public.orders", "public.added"), "exclude": ()})}
    )
    done = fix(fewer)
    assert any(line.startswith("added public.added") for line in done)
    assert any(line.startswith("dropped ") and "public.documents" in line for line in done)
    found = read_publication(admin, source.publication)
    assert [member.qualified for member in found.members] == ["public.added", "public.orders"]


def test_a_publication_that_lost_its_settings_gets_them_back(source, admin):
    name = sql.Identifier(source.publication)
    admin.execute(
        sql.SQL("ALTER PUBLICATION {} SET (publish = 'insert', publish_via_partition_root = false)").format(name)
    )
    partial = "(id, customer)" if MAJOR >= 15 else ""
    admin.execute(sql.SQL("ALTER PUBLICATION {} SET TABLE public.orders " + partial).format(name))
    assert len(fix(source)) == 2
    found = read_publication(admin, source.publication)
    assert found.via_root
    assert len(found.operations) == 4
    assert not any(member.is_partial for member in found.members)
    assert fix(source) == []


def test_a_table_without_key_is_not_published(source, admin):
    """Else UPDATE and DELETE would fail in the application."""
    admin.execute("CREATE TABLE public.keyless (x int)")
    admin.execute("CREATE TABLE public.deferred (id int PRIMARY KEY DEFERRABLE)")
    admin.execute("CREATE TABLE public.silent (id int PRIMARY KEY)")
    admin.execute("ALTER TABLE public.silent REPLICA IDENTITY NOTHING")
    assert fix(source) == []
    for table in ("keyless", "deferred", "silent"):
        admin.execute(sql.SQL("DELETE FROM public.{}").format(sql.Identifier(table)))


def test_a_publication_for_all_tables_is_left_alone(bare_source, admin):
    admin.execute(sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES").format(sql.Identifier(bare_source.publication)))
    assert not any("publication" in line for line in fix(bare_source))
    assert read_publication(admin, bare_source.publication).has_all_tables


def test_a_rotated_password_is_set(source):
    rotated = source.source.read.model_copy(update={"password": Role(user="x", password="new 'secret'").password})
    settings = source.model_copy(update={"source": source.source.model_copy(update={"read": rotated})})
    with pytest.raises(OperatorError) as refused:
        connect(settings.source, rotated)
    assert refused.value.code == "PASSWORD"
    assert "new 'secret'" not in f"{refused.value.message} {refused.value.hint}"
    assert fix(settings) == [f"set the password of role {rotated.user} to the configured one"]
    connect(settings.source, rotated).close()


def test_a_missing_attribute_is_given(source, admin):
    admin.execute(sql.SQL("ALTER ROLE {} NOLOGIN NOREPLICATION").format(sql.Identifier(source.source.stream.user)))
    assert fix(source) == [f"gave role {source.source.stream.user} LOGIN REPLICATION"]


def test_without_an_admin_it_says_what_to_set(source):
    settings = source.model_copy(update={"source": source.source.model_copy(update={"admin": None})})
    with pytest.raises(ConfigError) as refused:
        fix(settings)
    assert "source.admin" in refused.value.hint
