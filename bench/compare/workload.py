"""What both sides capture: tables with rows in them, then changes of every kind, with a fence at the end.

In: a connection that commits each statement. Out: nothing. The values of every type come from
tests/support/type_corpus.py, one row a value, so that a side which fails on a value shows which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg import sql

from tests.support.type_corpus import DDL, Case, corpus

Connection = psycopg.Connection[Any]

CORPUS: Final = "corpus"
FENCE: Final = "fence"
SCHEMAS: Final = ("public", "Odd Schema")
STREAMED: Final = 100_000
"""What is added to the id of a row of the corpus that is inserted while both capture."""
STOPPING: Final = ("refcursor",)
"""Types that stop Debezium's snapshot, and so the whole connector: its JDBC driver wants to open the cursor."""

TABLES: Final = """
CREATE TABLE public.plain (id int PRIMARY KEY, name text NOT NULL, amount numeric(10,2), paid boolean, note text);
CREATE TABLE public.whole (
    id bigint PRIMARY KEY, name text NOT NULL, amount numeric(10,2), at timestamptz, tags text[]
);
ALTER TABLE public.whole REPLICA IDENTITY FULL;
CREATE TABLE public.toasted (id int PRIMARY KEY, n int, big text, raw bytea, list text[]);
CREATE TABLE public.toasted_whole (id int PRIMARY KEY, n int, big text, raw bytea, list text[]);
ALTER TABLE public.toasted_whole REPLICA IDENTITY FULL;
ALTER TABLE public.toasted ALTER big SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL;
ALTER TABLE public.toasted ALTER list SET STORAGE EXTERNAL;
ALTER TABLE public.toasted_whole ALTER big SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL;
ALTER TABLE public.toasted_whole ALTER list SET STORAGE EXTERNAL;
CREATE TABLE public.pairs (v text, line int, order_id bigint, PRIMARY KEY (order_id, line));
CREATE TABLE public.typed_key (
    n numeric, at timestamptz, u uuid, day date, v int, twice int GENERATED ALWAYS AS (v * 2) STORED,
    PRIMARY KEY (n, at, u, day)
);
CREATE TABLE public.parts (id int, day date, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE public.parts_2025 PARTITION OF public.parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE public.parts_later PARTITION OF public.parts DEFAULT;
CREATE TABLE public.emptied (id int PRIMARY KEY, v text);
CREATE TABLE public.bulk (id int PRIMARY KEY, v int, filler text);
CREATE SCHEMA "Odd Schema";
CREATE TABLE "Odd Schema"."Order Lines/é" (
    "Key "" 1" text, "select" int, "a.b`c" text, PRIMARY KEY ("Key "" 1", "select")
);
CREATE TABLE public.fence (id int PRIMARY KEY);
"""
ROWS: Final = """
INSERT INTO public.plain SELECT g, 'name ' || g, g / 7.0, g % 2 = 0, NULL FROM generate_series(1, 20) g;
INSERT INTO public.whole SELECT g, 'é "' || g, g * 1.5, timestamptz '2026-01-01 10:00+02' + g * interval '1.000001 s',
    ARRAY['a', NULL, 'b,' || g] FROM generate_series(1, 20) g;
INSERT INTO public.toasted SELECT g, 0, repeat('x' || g, 3000), decode(repeat('00ff', 3000), 'hex'),
    ARRAY[repeat('y', 5000)] FROM generate_series(1, 4) g;
INSERT INTO public.toasted_whole SELECT * FROM public.toasted;
INSERT INTO public.pairs SELECT 'v', g % 5, g FROM generate_series(1, 10) g;
INSERT INTO public.typed_key (n, at, u, day, v) VALUES
    (1.50, '2026-01-01 00:00:00.5+00', '8F14E45F-CEEA-467F-A0E6-000000000001', '2026-01-01', 1),
    (2, '2026-01-02 00:00:00+00', '8F14E45F-CEEA-467F-A0E6-000000000002', '2026-01-02', 2);
INSERT INTO public.parts SELECT g, date '2025-12-30' + g, 'n' FROM generate_series(1, 4) g;
INSERT INTO public.emptied SELECT g, 'v' FROM generate_series(1, 8) g;
INSERT INTO public.bulk SELECT g, 0, 'f' FROM generate_series(1, 100) g;
INSERT INTO "Odd Schema"."Order Lines/é" VALUES ('a"b', 1, 'x'), ('', 2, NULL);
"""
CHANGES: Final = (
    "INSERT INTO public.plain VALUES (101, 'new', 1.00, true, 'note'), (102, 'other', NULL, NULL, NULL)",
    "UPDATE public.plain SET note = 'changed' WHERE id <= 3",
    "UPDATE public.plain SET note = NULL WHERE id = 2",
    "UPDATE public.plain SET name = name WHERE id = 4",
    "DELETE FROM public.plain WHERE id IN (5, 6)",
    "INSERT INTO public.plain VALUES (5, 'again', 0, false, '')",
    "UPDATE public.plain SET id = 207 WHERE id = 7",
    "UPDATE public.plain SET id = 307, note = 'moved twice' WHERE id = 207",
    "INSERT INTO public.whole VALUES (101, 'new', 1.00, now(), NULL)",
    "UPDATE public.whole SET amount = amount + 0.01 WHERE id <= 3",
    "UPDATE public.whole SET tags = NULL, at = NULL WHERE id = 4",
    "DELETE FROM public.whole WHERE id IN (5, 6)",
    "UPDATE public.whole SET id = 207 WHERE id = 7",
    "UPDATE public.toasted SET n = n + 1 WHERE id IN (1, 2)",
    "UPDATE public.toasted SET n = n + 1, big = 'short' WHERE id = 2",
    "UPDATE public.toasted SET id = 13 WHERE id = 3",
    "DELETE FROM public.toasted WHERE id = 4",
    "UPDATE public.toasted_whole SET n = n + 1 WHERE id IN (1, 2)",
    "UPDATE public.toasted_whole SET n = n + 1, big = 'short' WHERE id = 2",
    "UPDATE public.toasted_whole SET id = 13 WHERE id = 3",
    "DELETE FROM public.toasted_whole WHERE id = 4",
    "UPDATE public.pairs SET v = 'w' WHERE order_id < 4",
    "UPDATE public.pairs SET line = line + 10 WHERE order_id = 5",
    "DELETE FROM public.pairs WHERE order_id = 6",
    "UPDATE public.typed_key SET v = 9 WHERE n = 2",
    "UPDATE public.typed_key SET n = 1.5000 WHERE v = 1",
    "DELETE FROM public.typed_key WHERE v = 9",
    "UPDATE public.parts SET note = 'm' WHERE id = 1",
    "UPDATE public.parts SET day = day + 10 WHERE id = 1",
    "DELETE FROM public.parts WHERE id = 2",
    """UPDATE "Odd Schema"."Order Lines/é" SET "a.b`c" = 'é \U0001f600 \u2028 \u0001' WHERE "select" = 1""",
    """DELETE FROM "Odd Schema"."Order Lines/é" WHERE "select" = 2""",
    # One transaction over several tables, with the same row changed twice, and a savepoint that is rolled back.
    "BEGIN",
    "INSERT INTO public.plain VALUES (401, 'tx', 4, true, '')",
    "SAVEPOINT a",
    "INSERT INTO public.plain VALUES (402, 'never', 4, true, '')",
    "UPDATE public.whole SET amount = -1",
    "ROLLBACK TO SAVEPOINT a",
    "SAVEPOINT b",
    "INSERT INTO public.pairs VALUES ('tx', 1, 401)",
    "RELEASE SAVEPOINT b",
    "UPDATE public.plain SET note = 'twice' WHERE id = 401",
    "DELETE FROM public.whole WHERE id = 20",
    "INSERT INTO public.whole VALUES (20, 'came back', NULL, NULL, '{}')",
    "SELECT pg_logical_emit_message(true, 'audit', 'within')",
    "COMMIT",
    # One that is rolled back.
    "BEGIN",
    "INSERT INTO public.plain VALUES (403, 'never', 4, true, '')",
    "SELECT pg_logical_emit_message(true, 'audit', 'never')",
    "ROLLBACK",
    "SELECT pg_logical_emit_message(false, 'note', 'alone: é')",
    "SELECT pg_logical_emit_message(true, 'bytes', '\\x00ff80'::bytea)",
    "TRUNCATE public.emptied",
    "INSERT INTO public.emptied VALUES (1, 'after')",
    "BEGIN",
    "INSERT INTO public.emptied VALUES (2, 'gone')",
    "TRUNCATE public.emptied",
    "INSERT INTO public.emptied VALUES (3, 'stays')",
    "COMMIT",
    # One that is larger than what the server decodes in memory, so that it is streamed before it commits.
    "BEGIN",
    "INSERT INTO public.bulk SELECT g, g, repeat('b', 100) FROM generate_series(101, 20000) g",
    "UPDATE public.bulk SET v = v + 1 WHERE id % 10 = 0",
    "DELETE FROM public.bulk WHERE id % 100 = 0",
    "COMMIT",
)


def cases() -> tuple[Case, ...]:
    """The types of Postgres 17, without those that the peer stops at."""
    return tuple(case for case in corpus(17) if case.type not in STOPPING)


def prepare(connection: Connection) -> None:
    """Tables, and the rows that a snapshot finds."""
    connection.execute("ALTER SYSTEM SET logical_decoding_work_mem = '1MB'")
    connection.execute("SELECT pg_reload_conf()")
    for statement in (DDL, _corpus_ddl(), TABLES, ROWS):
        connection.execute(statement.encode())
    connection.execute("SET TIME ZONE 'UTC'")
    insert = sql.SQL("INSERT INTO public.corpus (id, {}) VALUES ({}, {})")
    for at, (column, value) in enumerate(_corpus_values()):
        connection.execute(insert.format(sql.Identifier(column), sql.Literal(at), value))


def change(connection: Connection) -> None:
    """Every kind of change; the row of the fence is the last."""
    others = sql.SQL(", ").join(map(sql.Identifier, _corpus_columns()))
    again = sql.SQL("INSERT INTO public.corpus SELECT id + {}, {} FROM public.corpus").format(STREAMED, others)
    for statement in CHANGES:
        connection.execute(statement.encode())
    connection.execute(again)
    connection.execute("INSERT INTO public.fence VALUES (1)")


def snapshot_rows(connection: Connection) -> int:
    """How many rows `prepare` made."""
    names = connection.execute(
        "SELECT schemaname, tablename FROM pg_tables "
        "WHERE schemaname = ANY(%s) AND tablename NOT LIKE 'parts!_%%' ESCAPE '!'",
        [list(SCHEMAS)],
    ).fetchall()
    counted = [
        connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*name))).fetchone()
        for name in names
    ]
    return sum(row[0] for row in counted if row is not None)


def column_types(connection: Connection) -> dict[tuple[str, str, str], str]:
    """The type of each column, by schema, table and name, as it was declared."""
    connection.execute("SET search_path = ''")
    rows = connection.execute(
        "SELECT n.nspname, c.relname, a.attname, "
        "format_type(a.atttypid, a.atttypmod) || CASE a.attgenerated WHEN 's' THEN ' generated' ELSE '' END "
        "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND a.attnum > 0",
        [list(SCHEMAS)],
    )
    return {(schema, table, column): kind for schema, table, column, kind in rows}


def _corpus_columns() -> dict[str, str]:
    named = {f"v{at}": case.type for at, case in enumerate(cases())}
    return named | {f"a{at}": f"{case.type}[]" for at, case in enumerate(cases()) if _has_array(case)}


def _corpus_ddl() -> str:
    columns = ", ".join(f"{column} {kind}" for column, kind in _corpus_columns().items())
    return f"CREATE TABLE public.{CORPUS} (id int PRIMARY KEY, {columns})"


def _corpus_values() -> Iterator[tuple[str, sql.Composable]]:
    """Each value and each shape of array, with its column: each in a row of its own."""
    for at, case in enumerate(cases()):
        for text in (*case.literals, *case.unfit):
            yield f"v{at}", _cast(text, case.type)
        if _has_array(case):
            for value in _arrays(case):
                yield f"a{at}", value


def _has_array(case: Case) -> bool:
    return case.array or bool(case.arrays)


def _arrays(case: Case) -> Iterator[sql.Composable]:
    kind = f"{case.type}[]"
    if case.arrays:
        yield from (_cast(text, kind) for text in case.arrays)
        return
    values = [_cast(text, case.type) for text in (*case.literals, *case.unfit)]
    yield sql.SQL("ARRAY[{}, NULL]::{}").format(sql.SQL(", ").join(values), sql.SQL(kind))
    yield sql.SQL("ARRAY[ARRAY[{}, NULL], ARRAY[NULL, {}]]::{}").format(values[0], values[-1], sql.SQL(kind))
    yield sql.SQL("array_fill({}, ARRAY[2], ARRAY[-1])::{}").format(values[0], sql.SQL(kind))
    yield sql.SQL("'{}'")


def _cast(text: str, kind: str) -> sql.Composed:
    return sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(kind))
