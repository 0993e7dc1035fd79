"""What `check` finds in Postgres, on a real server: each thing broken on purpose, and the remedy taken at its word."""

from __future__ import annotations

import re
import socket
from contextlib import closing

import pytest
from psycopg import sql

from cdc.check.finding import Level
from cdc.check.fix import fix
from cdc.check.publication import require_publication
from cdc.check.source import look_at_source
from cdc.errors import OperatorError
from cdc.frames import WalData, decode_frame
from cdc.pgoutput import RelationMessage, decode
from cdc.postgres import connect
from cdc.replication import ReplicationConnection
from cdc.settings import History, Role
from cdc.sqlstate import translated
from tests.support.postgres_version import MAJOR, since
from tests.support.servers import fresh_database
from tests.support.source import prepared_source
from tests.support.wait import wait_until

SQL_IN_REMEDY = re.compile(r"(?:ALTER|GRANT|SELECT|DROP) .*?(?=, then|, or|$)")


def codes(settings, level=None):
    return {found.code for found in look_at_source(settings)[0] if level is None or found.level is level}


def finding(settings, code):
    found = [each for each in look_at_source(settings)[0] if each.code == code]
    assert found, f"no {code}"
    return found[0]


def with_source(settings, **changes):
    return settings.model_copy(update={"source": settings.source.model_copy(update=changes)})


def spelled(statement, settings):
    """The statement with the source's own names in it."""
    source = settings.source
    names = {"stream": source.stream.user, "read": source.read.user, "publication": settings.publication}
    return sql.SQL(statement).format(**{key: sql.Identifier(name) for key, name in names.items()})


def test_a_prepared_source_is_right(source):
    found, relations = look_at_source(source)
    assert {each.code for each in found if each.level is Level.OK} == {
        "SERVER",
        "ROLES",
        "SLOT",
        "TABLES",
        "PUBLICATION",
    }
    assert {each.code for each in found if each.level is not Level.OK} == set()
    assert {relation.name for relation in relations} >= {"orders", "order_items", "documents", "events"}


def test_an_unprepared_source_says_what_to_run(bare_source):
    found, _ = look_at_source(bare_source)
    assert {each.code for each in found} == {"PASSWORD"}
    fix(bare_source)
    assert codes(bare_source, Level.CRITICAL) == set()


HEALED_BY_SQL = [
    ("CREATE TABLE public.shy (id int PRIMARY KEY); ALTER TABLE public.shy ENABLE ROW LEVEL SECURITY", "ROW_SECURITY"),
    ("ALTER TABLE public.orders REPLICA IDENTITY NOTHING", "IDENTITY_NOTHING"),
    (
        "ALTER TABLE public.orders ALTER customer SET NOT NULL; CREATE UNIQUE INDEX by ON public.orders (customer); "
        "ALTER TABLE public.orders REPLICA IDENTITY USING INDEX by",
        "IDENTITY_INDEX",
    ),
    ("REVOKE SELECT ON public.orders FROM {read}", "PRIVILEGE"),
    ("REVOKE USAGE ON SCHEMA public FROM {read}, PUBLIC", "PRIVILEGE"),
    ("ALTER ROLE {stream} NOREPLICATION", "NO_REPLICATION"),
    ("ALTER ROLE {stream} NOLOGIN", "LOGIN"),
    ("ALTER ROLE {read} REPLICATION", "READ_REPLICATES"),
    pytest.param("ALTER ROLE {stream} SET transaction_timeout = '10min'", "ROLE_TIMEOUT", marks=since(17)),
    ("ALTER PUBLICATION {publication} SET (publish_via_partition_root = false)", "PUBLICATION_PARTITIONS"),
]


@pytest.mark.parametrize(("breaking", "code"), HEALED_BY_SQL)
def test_the_remedy_heals(source, admin, breaking, code):
    admin.execute(spelled(breaking, source))
    found = finding(source, code)
    statement = SQL_IN_REMEDY.search(found.remedy)
    assert statement, found.remedy
    admin.execute(statement[0].encode())
    fix(source)  # a table that had to be left out is published now
    assert found not in look_at_source(source)[0]


def test_full_identity_is_recommended_where_long_values_are_updated(source, admin):
    admin.execute("ALTER TABLE public.order_items ALTER product SET STORAGE EXTERNAL")
    assert "TOAST_LEFT_OUT" not in codes(source)
    admin.execute("INSERT INTO public.order_items VALUES (1, 1, repeat('x', 9000), 1)")
    admin.execute("UPDATE public.order_items SET quantity = 2")

    def counted() -> bool:
        admin.execute("SELECT 1")  # before 15 a session tells its counts only at the end of a later statement
        return "TOAST_LEFT_OUT" in codes(source)

    wait_until(counted, what="Postgres to count the update")
    found = finding(source, "TOAST_LEFT_OUT")
    assert "1 updates so far, and 16.0 KiB" in found.message
    statement = SQL_IN_REMEDY.search(found.remedy)
    assert statement
    admin.execute(statement[0].encode())
    assert "TOAST_LEFT_OUT" not in codes(source)


HEALED_BY_FIX = [
    ("DROP PUBLICATION {publication}", "PUBLICATION_MISSING"),
    ("ALTER PUBLICATION {publication} DROP TABLE public.orders", "PUBLICATION_LACKS"),
    ("ALTER PUBLICATION {publication} ADD TABLE public.secrets", "PUBLICATION_EXTRA"),
    ("ALTER PUBLICATION {publication} SET (publish = 'insert')", "PUBLICATION_OPERATIONS"),
    pytest.param(
        "ALTER PUBLICATION {publication} SET TABLE public.orders WHERE (id > 5)", "PUBLICATION_PARTIAL", marks=since(15)
    ),
    ("DROP OWNED BY {read}; DROP ROLE {read}", "NO_ROLE"),
    ("ALTER ROLE {read} PASSWORD 'another'", "PASSWORD"),
]


@pytest.mark.parametrize(("breaking", "code"), HEALED_BY_FIX)
def test_fix_heals(source, admin, breaking, code):
    admin.execute(spelled(breaking, source))
    assert "check --fix" in finding(source, code).remedy
    assert fix(source)
    assert code not in codes(source)


FOR_A_PERSON = [
    ("CREATE TABLE public.keyless (x int)", "NO_KEY", Level.CRITICAL),
    ("CREATE TABLE public.later (id int PRIMARY KEY DEFERRABLE)", "KEY_DEFERRABLE", Level.CRITICAL),
    ("CREATE UNLOGGED TABLE public.fleeting (id int PRIMARY KEY)", "NOT_CAPTURED", Level.WARNING),
    ("CREATE TABLE public.child (note text) INHERITS (public.orders)", "INHERITED", Level.WARNING),
    (
        "CREATE TABLE public.sums (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (2 * id) "
        + ("VIRTUAL)" if MAJOR >= 18 else "STORED)"),
        "GENERATED_COLUMN",
        Level.WARNING,
    ),
    ("ALTER ROLE {stream} SUPERUSER", "SUPERUSER", Level.WARNING),
    ("ALTER TABLE public.events_2025 REPLICA IDENTITY NOTHING", "IDENTITY_NOTHING", Level.CRITICAL),
    (
        "CREATE TABLE public.e2 PARTITION OF public.events FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');"
        "ALTER TABLE public.e2 REPLICA IDENTITY NOTHING",
        "IDENTITY_NOTHING",
        Level.CRITICAL,
    ),
    (
        "DROP PUBLICATION {publication}; CREATE PUBLICATION {publication} FOR ALL TABLES",
        "PUBLICATION_ALL_TABLES",
        Level.CRITICAL,
    ),
    pytest.param(
        "DROP PUBLICATION {publication}; CREATE PUBLICATION {publication} FOR TABLES IN SCHEMA public",
        "PUBLICATION_ALL_TABLES",
        Level.CRITICAL,
        marks=since(15),
    ),
]


@pytest.mark.parametrize(("breaking", "code", "level"), FOR_A_PERSON)
def test_what_a_person_must_decide_is_named(source, admin, breaking, code, level):
    admin.execute(spelled(breaking, source))
    found = finding(source, code)
    assert found.level is level
    assert found.remedy
    fix(source)
    if code != "SUPERUSER":
        assert code in codes(source)


def test_wrong_names_get_the_nearest(source):
    found = finding(with_source(source, tables=("public.oders",)), "UNKNOWN_TABLE")
    assert "public.orders" in found.remedy
    assert finding(with_source(source, exclude=("public.secret",)), "UNKNOWN_EXCLUDE").remedy.endswith(
        "public.secrets?"
    )


def test_a_history_of_no_table_is_told(source):
    kept = source.model_copy(update={"history": History(tables=("public.orders", "public.oder_items"))})
    assert finding(kept, "UNKNOWN_HISTORY").remedy.endswith("public.order_items?")


def test_a_server_that_is_away_is_one_finding(source):
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        found, relations = look_at_source(with_source(source, port=unused.getsockname()[1]))
    assert [each.code for each in found] == ["POSTGRES_UNAVAILABLE"]
    assert relations == []


def test_an_unknown_database_is_named(source):
    assert codes(with_source(source, database="nowhere")) == {"NO_DATABASE"}


def test_an_unreadable_password_file_is_named(source, tmp_path):
    role = Role(user=source.source.read.user, password_file=tmp_path / "absent")
    assert str(role.password_file) in finding(with_source(source, read=role), "PASSWORD_FILE").message


def test_no_secret_in_any_finding(source):
    canary = "canary-7f3a"
    roles = {name: Role(user=getattr(source.source, name).user, password=canary) for name in ("stream", "read")}
    for settings in (with_source(source, **roles), with_source(source, **roles, database="nowhere")):
        assert canary not in repr(look_at_source(settings))


def test_who_holds_the_slot_is_named(source):
    holder = ReplicationConnection(source.source, source.source.stream, application="somebody else")
    try:
        slot = holder.create_slot(source.slot)
        holder.start(source.slot, source.publication, slot.consistent_lsn)
        assert "somebody else" in finding(source, "SLOT_IN_USE").message
    finally:
        holder.close()


def test_our_own_capture_may_hold_the_slot(source):
    holder = ReplicationConnection(source.source, source.source.stream, application=f"afterimage {source.pipeline}")
    try:
        slot = holder.create_slot(source.slot)
        holder.start(source.slot, source.publication, slot.consistent_lsn)
        assert finding(source, "SLOT").level is Level.OK
    finally:
        holder.close()


def test_a_slot_of_another_plugin_is_refused(source, admin):
    admin.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [source.slot])
    assert finding(source, "SLOT_OTHER").level is Level.CRITICAL


def test_a_slot_of_another_database_is_refused(source, postgres):
    with fresh_database(postgres) as other, other.connect() as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [source.slot])
        assert other.dbname in finding(source, "SLOT_OTHER").message


def test_much_wal_kept_is_told(source, admin):
    admin.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [source.slot])
    admin.execute("SELECT pg_logical_emit_message(true, 'fill', repeat('x', 100000))")
    assert finding(with_source(source, wal_kept_warning_bytes=1000), "WAL_KEPT").level is Level.WARNING


def test_capture_refuses_to_begin_without_its_publication(source, admin):
    relations = look_at_source(source)[1]
    require_publication(admin, source.publication, relations)
    admin.execute(spelled("DROP PUBLICATION {publication}", source))
    with pytest.raises(OperatorError) as refused:
        require_publication(admin, source.publication, relations)
    assert refused.value.code == "PUBLICATION_MISSING"
    assert "check --fix" in refused.value.hint


def test_the_sessions_settings_beat_the_roles_own(source, admin):
    for setting in ("statement_timeout = 1", "row_security = on", "DateStyle = 'German'", "TimeZone = 'Asia/Tokyo'"):
        admin.execute(spelled("ALTER ROLE {read} SET " + setting, source))
    with connect(source.source, source.source.read) as session:
        shown = [session.execute(f"SHOW {name}").fetchone()[0] for name in ("statement_timeout", "row_security")]
        assert shown == ["0", "off"]
        assert session.execute("SELECT timestamptz '2026-01-02 03:04+09'::text").fetchone() == (
            "2026-01-01 18:04:00+00",
        )


def test_a_policy_is_an_error_and_says_so(source, admin):
    admin.execute("ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY")
    with connect(source.source, source.source.read) as session, pytest.raises(OperatorError) as refused, translated():
        session.execute("SELECT * FROM public.orders")
    assert refused.value.code == "ROW_SECURITY"


@pytest.mark.parametrize("major", [14, 15, 18])
def test_other_versions_are_prepared_and_found_right(postgres_major, pipeline_name, tmp_path, major):
    with fresh_database(postgres_major(major)) as database:
        ddl = "CREATE TABLE public.sums (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (2 * id) STORED, note text)"
        with prepared_source(database, pipeline_name, tmp_path, ddl=ddl, tables=("public.*",), exclude=()) as settings:
            fix(settings)
            found, [relation] = look_at_source(settings)
            assert {each.code for each in found if each.level is Level.CRITICAL} == set()
            assert ("GENERATED_COLUMN" in {each.code for each in found}) == (major < 18)
            assert [column.name for column in relation.columns] == _streamed(settings, database)
            assert fix(settings) == []


def _streamed(settings, database):
    """The columns of the Relation message that the server really sends."""
    connection = ReplicationConnection(settings.source, settings.source.stream)
    try:
        slot = connection.create_slot(settings.slot)
        with database.connect() as writer:
            writer.execute("INSERT INTO public.sums (id, note) VALUES (1, 'x')")
        connection.start(settings.slot, settings.publication, slot.consistent_lsn)
        while True:
            for frame in map(decode_frame, connection.read(5)[0]):
                if isinstance(frame, WalData) and isinstance(message := decode(frame.payload), RelationMessage):
                    return [column.name for column in message.columns]
    finally:
        connection.close()
