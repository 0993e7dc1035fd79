"""What `check` finds in view files beside a real Postgres, before anything was captured."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from cdc.check import Finding, Level, fix
from cdc.check.source import look_at_source
from cdc.cli.view_files import look_at_views
from cdc.settings import Settings
from jobs.prove.agreed import disagreements
from jobs.prove.source import ColumnType, SourceCut
from tests.support.servers import PostgresServer, fresh_database
from tests.support.source import prepared_source
from tests.support.view_corpus import CORPORA, ViewCorpus, prepared, tables_of

CONFIG = Path(__file__).parents[2] / "config"
POINT = ColumnType(600, -1)


def found_in(settings: Settings, **files: str) -> list[Finding]:
    settings.views.mkdir(exist_ok=True)
    for name, text in files.items():
        (settings.views / f"{name}.sql").write_text(text)
    return look_at_views(settings, look_at_source(settings)[1])


def test_views_that_are_right(source: Settings):
    [found] = found_in(
        source,
        paid="SELECT id, customer, amount FROM orders WHERE paid",
        customers="SELECT customer, sum(amount) AS amount FROM paid GROUP BY customer",
    )
    assert (found.level, found.code, found.message) == (
        Level.OK,
        "VIEWS",
        "2 views, each runs in Postgres as it is declared",
    )


def test_the_example_s_views(pg_database, pipeline_name, tmp_path):
    with prepared_source(
        pg_database, pipeline_name, tmp_path, ddl=(CONFIG / "shop" / "schema.sql").read_text(), tables=("public.*",)
    ) as settings:
        fix(settings)
        [found] = found_in(settings.model_copy(update={"views": CONFIG / "views"}))
    assert found.level is Level.OK


def test_each_wrong_file_is_a_finding_and_the_others_are_looked_at(source: Settings):
    found = found_in(
        source,
        a="-- sinks: delta, kafak\nSELECT id FROM orders",
        b="SELECT id, len(customer) AS size FROM orders",
        c="SELECT id, nothing FROM orders",
        d="SELECT id FROM orders",
        e="SELECT id FROM c",
    )
    assert [each.level for each in found] == [Level.CRITICAL] * 4
    assert {each.code for each in found} == {
        "VIEW_HEADER",
        "VIEW_UNSUPPORTED",
        "VIEW_UNKNOWN_COLUMN",
        "VIEW_UNKNOWN_TABLE",
    }
    assert all(each.message.startswith(str(source.views)) and each.remedy for each in found)


def test_what_postgres_refuses(source: Settings, admin: psycopg.Connection):
    user = sql.Identifier(source.source.read.user)
    admin.execute(sql.SQL("REVOKE SELECT ON public.order_items FROM {}").format(user))
    [found] = found_in(source, lines="SELECT order_id, line FROM order_items", right="SELECT id FROM orders")
    assert (found.level, found.code) == (Level.CRITICAL, "VIEW_IN_POSTGRES")
    assert found.message.startswith(f"{source.views}/lines.sql: Postgres does not run it: ")
    assert "permission denied for table order_items" in found.message


def test_a_column_whose_values_are_concealed(source: Settings):
    rules = source.source.model_copy(
        update={"columns": {"public.orders": {"customer": "hash"}}, "hash_key": SecretStr("k" * 64)}
    )
    [found] = found_in(source.model_copy(update={"source": rules}), who="SELECT id, customer FROM orders")
    assert found.level is Level.OK, found


def test_a_source_that_is_away_is_told_once(source: Settings):
    relations = look_at_source(source)[1]
    away = source.model_copy(update={"source": source.source.model_copy(update={"port": 1})})
    source.views.mkdir(exist_ok=True)
    (source.views / "orders_again.sql").write_text("SELECT id FROM orders")
    assert look_at_views(away, relations) == []
    assert look_at_views(away, []) == []


@pytest.mark.parametrize("name", CORPORA)
def test_every_view_of_the_corpora_has_the_types_that_postgres_gives(name: str, postgres: PostgresServer):
    corpus = ViewCorpus(name)
    with fresh_database(postgres) as database, database.connect() as connection:
        prepared(connection, corpus)
        specs = corpus.declared(tables_of(connection))
        source = SourceCut(0, connection)
        found = {view: [*disagreements(spec, source.types(spec))] for view, spec in specs.items()}
    assert {view: messages for view, messages in found.items() if messages} == {}
    points = {spec.name: [*disagreements(spec, [POINT] * len(spec.columns))] for spec in specs.values() if spec.plan}
    assert len(points) >= 22
    assert all(points.values()), "no view is of points"
