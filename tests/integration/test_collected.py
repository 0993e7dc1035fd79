"""Aggregates that put a group's values into one, computed by real Postgres and by real Spark, compared as text."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from cdc.postgres import SESSION
from jobs.declare import declare_views
from jobs.declare.source import Source
from jobs.plan.render import render
from jobs.tables import TableInfo
from sinks.spec import ViewSpec
from tests.support.answers import answered, create, held, printed
from tests.support.servers import PostgresServer, fresh_database
from tests.support.view_expressions import AWKWARD_TEXTS

COLUMNS = {
    "g": "integer",
    "s": "text",
    "i": "integer",
    "d": "numeric(10,2)",
    "b": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "tz": "timestamptz",
    "u": "uuid",
    "j": "jsonb",
    "w": "json",
}
UUIDS = ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"]
DOCUMENTS = ['{"bb": 1, "a": [1, 2.50, {"x": "\\u00e9\\n"}]}', "null", '"x"']
TIME = "2024-02-29 12:00:00.5"

VALUES = ("s", "i", "d", "b", "dt", "ts", "tz", "u")
COLLECTED = (
    *(f"{name}({value} ORDER BY id)" for name in ("json_agg", "jsonb_agg", "array_agg") for value in VALUES),
    "json_agg(j ORDER BY id DESC)",
    "jsonb_agg(j ORDER BY id)",
    "json_agg(w ORDER BY id)",
    "json_agg(json_build_object('s', s, 'i', i, 'w', w) ORDER BY id)",
    "jsonb_agg(jsonb_build_object('s', s, 'i', i, 'j', j) ORDER BY i NULLS FIRST, id)",
    "jsonb_agg(i ORDER BY i DESC, id) FILTER (WHERE b)",
    "coalesce(jsonb_agg(i ORDER BY id) FILTER (WHERE i > 1000), '[]')",
    "coalesce(json_agg(i ORDER BY id) FILTER (WHERE i > 1000), '[]'::json)",
    "string_agg(s, ', ' ORDER BY id)",
    "string_agg(s, '' ORDER BY dt DESC, id)",
    "string_agg(s, '''$\\' ORDER BY s COLLATE \"C\" DESC)",
    "string_agg(i::text, '+' ORDER BY b, d DESC NULLS LAST, tz, id) FILTER (WHERE s <> '')",
    "array_agg(i ORDER BY i)",
    "jsonb_build_object('count', count(*), 'all', jsonb_agg(s ORDER BY id), 'none', max(i))",
)
REFUSED = {
    "json_agg(i)": "without ORDER BY",
    "string_agg(s, ',')": "without ORDER BY",
    "array_agg(i ORDER BY b)": "ties",
    "json_agg(DISTINCT i ORDER BY i)": "DISTINCT",
    "jsonb_agg(w ORDER BY id)": "json in jsonb",
    "jsonb_agg(f ORDER BY id)": "double precision in jsonb",
    "array_agg(j ORDER BY id)": "array_agg of jsonb",
    "string_agg(s, s ORDER BY id)": "without a literal",
    "json_agg(s ORDER BY s)": "collation",
    "jsonb_build_object(s, 1)": "string literal",
    "jsonb_build_object('s')": "value",
    "json_object_agg(s, i)": "json_object_agg",
}


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    with fresh_database(postgres) as database, database.connect() as connection:
        for name, value in SESSION.items():
            if name != "search_path":
                connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        yield connection


@pytest.fixture(scope="module")
def facts(connection: psycopg.Connection, spark: SparkSession) -> TableInfo:
    rows = [
        [
            *(n % 4, text, n % 7 - 3, f"{n - 9}.50", n % 3 == 0, f"2024-02-{n % 28 + 1:02}", TIME, f"{TIME}+0{n % 3}"),
            *(UUIDS[n % 2], DOCUMENTS[n % 3], ' {"b" :1,\n "a": 2} '),
        ]
        for n, text in enumerate(AWKWARD_TEXTS)
    ]
    rows = [[None if at and (n + at) % 9 == 0 else value for at, value in enumerate(row)] for n, row in enumerate(rows)]
    rows += [[99, *[None] * 10], [None, "alone", *[None] * 9]]
    table = create(connection, "facts", {**COLUMNS, "f": "double precision"}, [[*row, None] for row in rows])
    held(spark, connection, table).createOrReplaceTempView("collected_facts")
    return table


def declared(table: TableInfo, *expressions: str) -> ViewSpec:
    outputs = ", ".join(f"{each} AS c{at}" for at, each in enumerate(expressions))
    text = f"-- key: g\nSELECT g, {outputs} FROM public.facts GROUP BY g"
    (spec,) = declare_views({"v": Source("v.sql", text)}, {("public", "facts"): table}, queries=True)
    return spec


def test_spark_collects_what_postgres_collects(connection: psycopg.Connection, spark: SparkSession, facts: TableInfo):
    spec = declared(facts, *COLLECTED)
    sql = render(spec.plan.root, lambda _: "collected_facts")
    columns = ", ".join(column.sql for column in spec.plan.outputs)
    expected = {row[0]: row for row in printed(connection, spec.postgres_sql)}
    got = {row[0]: row for row in answered(spark, f"SELECT {columns} FROM ({sql})")}
    assert len(expected) == 6
    assert got.keys() == expected.keys()
    for group, row in expected.items():
        assert dict(zip(COLLECTED, got[group][1:], strict=True)) == dict(zip(COLLECTED, row[1:], strict=True))


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_not_sure_is_refused(facts: TableInfo, expression: str):
    with pytest.raises(ConfigError) as raised:
        declared(facts, expression)
    assert REFUSED[expression] in raised.value.message


def test_the_types_of_what_is_built_are_told_to_the_sinks(facts: TableInfo):
    kinds = {
        "jsonb_agg(i ORDER BY id)": "jsonb",
        "json_agg(i ORDER BY id)": "json",
        "array_agg(d ORDER BY id)": "numeric(10,2)[]",
        "array_agg(s ORDER BY id)": "text[]",
    }
    assert {each: declared(facts, each).printed.get("c0") for each in kinds} == kinds
    assert declared(facts, "string_agg(s, ',' ORDER BY id)").printed == {}
