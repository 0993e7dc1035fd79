"""A cut of the source shows exactly the transactions whose commit record lies before its LSN, whatever is going on."""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from cdc.catalog import load_relations
from cdc.check.fix import fix
from cdc.errors import CdcError, OperatorError, TransientError
from cdc.postgres import connect
from cdc.schema_record import SchemaRecord
from cdc.settings import Settings
from jobs.declare import mirror_spec
from jobs.prove.source import SourceCut, source_at_lsn
from jobs.tables import TableInfo
from sinks.spec import Kind, NamedTable, ViewSpec
from tests.support.servers import Database, PostgresServer, fresh_database
from tests.support.source import prepared_source
from tests.support.wait import wait_until

TABLES = """
CREATE TABLE public.ledger (id bigserial PRIMARY KEY, xid bigint DEFAULT pg_current_xact_id()::text::bigint);
"""
WRITERS = 4


def view(sql: str, *columns: str) -> ViewSpec:
    key = columns[:1]
    return ViewSpec("v", Kind.ROWWISE, "public", "ledger", key, key, columns, sql, "", (), "")


@pytest.fixture
def ledger(pg_database: Database, pipeline_name: str, tmp_path: Any) -> Iterator[Settings]:
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=TABLES, tables=("public.ledger",)) as settings:
        fix(settings)
        yield settings


def admin(settings: Settings) -> psycopg.Connection[Any]:
    assert settings.source.admin is not None
    return connect(settings.source, settings.source.admin)


def test_a_view_reads_the_table_and_not_what_inherits_from_it(ledger: Settings) -> None:
    table = mirror_spec(table_info(ledger))
    rowwise = replace(
        view("SELECT id FROM public.ledger WHERE id > 0", "id"),
        named=(NamedTable("public", "ledger", len("SELECT id FROM ")),),
    )
    with admin(ledger) as connection:
        connection.execute("INSERT INTO public.ledger VALUES (1)")
        connection.execute("CREATE TABLE public.closed () INHERITS (public.ledger)")
        connection.execute("INSERT INTO public.closed VALUES (2), (1)")
    with source_at_lsn(ledger) as cut:
        for spec in (table, rowwise):
            assert [row[0] for row in cut.rows(spec)] == ["1"]
            assert len(cut.types(spec)) == len(spec.columns)


def table_info(settings: Settings) -> TableInfo:
    with admin(settings) as connection:
        (relation,) = load_relations(connection, settings.source.tables, ())
    record = SchemaRecord(0, relation, "t", 1)
    return TableInfo.from_json(record.value())


@contextmanager
def load(settings: Settings) -> Iterator[None]:
    """Writers with savepoints, rollbacks and unflushed commits, until the `with` ends."""
    stop = threading.Event()

    def write(number: int) -> None:
        with admin(settings) as connection:
            connection.execute(f"SET synchronous_commit = {'off' if number % 2 else 'on'}")
            turn = 0
            while not stop.is_set():
                turn += 1
                connection.execute("BEGIN; INSERT INTO public.ledger DEFAULT VALUES; SAVEPOINT s")
                connection.execute("INSERT INTO public.ledger DEFAULT VALUES")
                if turn % 5 == 0:
                    connection.execute("ROLLBACK TO s")
                connection.execute("ROLLBACK" if turn % 7 == 0 else "COMMIT")

    threads = [threading.Thread(target=write, args=[number]) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def committed_before(settings: Settings, slot: str) -> dict[int, int]:
    """xid -> LSN of its commit record, as the log has them."""
    commits = {}
    with admin(settings) as connection:
        changes = connection.execute(
            "SELECT xid::text::bigint, data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, "
            "'proto_version', '1', 'publication_names', %s)",
            [slot, settings.publication],
        )
        for xid, data in changes:
            if data[:1] == b"C":
                commits[xid] = struct.unpack_from(">Q", data, 2)[0]
    return commits


def seen(cut: SourceCut) -> set[int]:
    rows = cut.rows(view("SELECT id, xid FROM public.ledger", "id", "xid"))
    return {int(xid or 0) for _, xid in rows}


def test_a_cut_under_load_is_exact(ledger: Settings) -> None:
    slot = f"watch_{secrets.token_hex(4)}"
    with admin(ledger) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    cuts: list[tuple[int, set[int]]] = []
    with load(ledger):
        for _ in range(8):
            with source_at_lsn(ledger) as cut:
                cuts.append((cut.lsn, seen(cut)))
    commits = committed_before(ledger, slot)
    for lsn, xids in cuts:
        assert xids == {xid for xid, commit_lsn in commits.items() if commit_lsn < lsn}
    assert len(commits) > 100
    assert [lsn for lsn, _ in cuts] == sorted({lsn for lsn, _ in cuts})
    assert len(cuts[-1][1]) > len(cuts[0][1])


def test_the_slot_is_gone_while_the_cut_is_read(ledger: Settings) -> None:
    with source_at_lsn(ledger) as cut, admin(ledger) as connection:
        mine = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        wait_until(lambda: connection.execute(mine).fetchone() is None, what="the temporary slot to go")
        connection.execute("INSERT INTO public.ledger DEFAULT VALUES")
        assert seen(cut) == set()


def test_a_transaction_that_stays_open_is_waited_for_and_then_named(ledger: Settings) -> None:
    with admin(ledger) as connection:
        connection.execute("BEGIN; INSERT INTO public.ledger DEFAULT VALUES")
        with pytest.raises(TransientError) as caught, source_at_lsn(ledger, timeout_s=1):
            pass
        assert caught.value.code == "OPEN_TRANSACTION"
        threading.Timer(0.5, connection.commit).start()
        with source_at_lsn(ledger, timeout_s=30) as cut:
            assert len(seen(cut)) == 1


def test_a_view_that_does_not_run_leaves_the_cut_usable(ledger: Settings) -> None:
    with admin(ledger) as connection:
        connection.execute("INSERT INTO public.ledger DEFAULT VALUES")
    with source_at_lsn(ledger) as cut:
        with pytest.raises(OperatorError, match=r"view v: .*nowhere"):
            cut.types(view("SELECT nowhere FROM public.ledger", "nowhere"))
        with pytest.raises(OperatorError, match="1 columns, its SQL gives 2"):
            cut.types(view("SELECT id, xid FROM public.ledger", "id"))
        with pytest.raises(CdcError):
            list(cut.rows(view("SELECT id / (id - id) FROM public.ledger", "id")))
        assert next(cut.rows(view("SELECT id FROM public.ledger, generate_series(1, 100000) -- all", "id"))) == ("1",)
        assert len(seen(cut)) == 1


def test_types_look_through_domains(ledger: Settings) -> None:
    with admin(ledger) as connection:
        connection.execute("CREATE DOMAIN public.price AS numeric(10,2); GRANT USAGE ON SCHEMA public TO public")
    with source_at_lsn(ledger) as cut:
        [first, second] = cut.types(view("SELECT 1.5::public.price, 'x'::text -- done;", "p", "t"))
    assert (first.oid, first.mod, second.oid) == (1700, ((10 << 16) | 2) + 4, 25)


@pytest.mark.parametrize("major", [14, 18])
def test_other_versions(postgres_major: Any, major: int, pipeline_name: str, tmp_path: Any) -> None:
    server: PostgresServer = postgres_major(major)
    with (
        fresh_database(server) as database,
        prepared_source(database, pipeline_name, tmp_path, ddl=TABLES, tables=("public.ledger",)) as settings,
    ):
        fix(settings)
        with database.connect() as connection:
            connection.execute("INSERT INTO public.ledger DEFAULT VALUES")
        with source_at_lsn(settings) as cut:
            assert len(seen(cut)) == 1
