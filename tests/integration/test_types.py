"""Every type of Postgres, through capture, topic and Delta, by the driver and by Spark: the text that Postgres prints.

The values are those of tests/support/type_corpus.py, as columns and as arrays of several shapes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from cdc.check.fix import fix
from cdc.postgres import SESSION
from cdc.settings import Delta, Kafka, Settings
from cdc.stack.server import Endpoint
from cdc.values import decode_json, encoder
from jobs.bulk.parse import parsed as bulk_parsed
from jobs.bulk.read import read_rows
from jobs.bulk.scan import Records
from jobs.bulk.typed import typed
from jobs.changes import read_changes
from jobs.declarations import captured_tables
from jobs.declare import mirror_spec
from jobs.native_rows import Last, Unusual, arrow_rows
from jobs.prove.render import renderer
from jobs.rows import parsed
from jobs.tables import ColumnInfo, TableInfo
from jobs.typemap import delta_type
from sinks.delta import DeltaSink
from sinks.delta.log import native_values
from sinks.protocol import Position
from tests.support.capturing import insert_lsn, running_capture, table_messages
from tests.support.events import dumps
from tests.support.postgres_version import MAJOR
from tests.support.reading import WAYS, read_by
from tests.support.servers import PostgresServer, fresh_database
from tests.support.source import prepared_source
from tests.support.type_corpus import DDL, NOT_STORABLE, USER_DEFINED, Case, corpus

CASES = corpus(MAJOR)
SHAPES = 6
STREAMED = 1000
"""What is added to the id of a row that is inserted while capture runs."""
TextRow = tuple[str | None, ...]


def literal(case: Case, number: int) -> sql.Composable:
    return sql.SQL("{}::{}").format(sql.Literal(case.literals[number % len(case.literals)]), sql.SQL(case.type))


def array(case: Case, number: int) -> sql.Composable:
    kind = sql.SQL(case.type + "[]")
    if case.arrays:
        return sql.SQL("{}::{}").format(sql.Literal(case.arrays[number % len(case.arrays)]), kind)
    values = [literal(case, at) for at in range(len(case.literals))]
    shapes = (
        sql.SQL("ARRAY[{}, NULL]").format(sql.SQL(", ").join(values)),
        sql.SQL("ARRAY[ARRAY[{}, NULL], ARRAY[NULL, {}]]").format(values[0], values[-1]),
        sql.SQL("array_fill({}, ARRAY[2], ARRAY[-1])").format(values[0]),
        sql.SQL("array_fill({}, ARRAY[2, 1, 2], ARRAY[0, 1, 5])").format(values[-1]),
        sql.SQL("'{}'"),
        sql.SQL("NULL"),
    )
    return sql.SQL("({})::{}").format(shapes[number % SHAPES], kind)


def table_ddl() -> str:
    columns = [f"v{at} {case.type}" for at, case in enumerate(CASES)]
    columns += [f"a{at} {case.type}[]" for at, case in enumerate(CASES) if case.array or case.arrays]
    return f"{DDL} CREATE TABLE public.corpus (id int PRIMARY KEY, {', '.join(columns)});"


def rows_of() -> Iterator[sql.Composed]:
    """Rows until every literal and every shape of array was there; the last one is all NULL."""
    count = max(SHAPES, *(len(case.literals) for case in CASES))
    for number in range(count):
        values = [literal(case, number) for case in CASES]
        values += [array(case, number) for case in CASES if case.array or case.arrays]
        yield sql.SQL("INSERT INTO public.corpus VALUES ({}, {})").format(
            sql.Literal(number), sql.SQL(", ").join(values)
        )
    yield sql.SQL("INSERT INTO public.corpus VALUES ({})").format(sql.Literal(count))


@dataclass
class Captured:
    """The corpus as Postgres prints it, and as the topic has it."""

    settings: Settings
    table: TableInfo
    printed: dict[str, TextRow]
    """By key."""
    afters: dict[str, str]
    """The JSON of `after`, to the letter, by key."""
    ends: tuple[int, ...]


@pytest.fixture(scope="module")
def captured(postgres: PostgresServer, kafka: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    folder, name = tmp_path_factory.mktemp("types"), f"t{secrets.token_hex(5)}"
    with (
        fresh_database(postgres) as database,
        prepared_source(database, name, folder, ddl=table_ddl(), tables=("public.corpus",), exclude=()) as source,
        database.connect(options=" ".join(f"-c {key}={value}" for key, value in SESSION.items())) as connection,
    ):
        for statement in rows_of():
            connection.execute(statement)
        settings = source.model_copy(
            update={"kafka": Kafka(bootstrap=kafka.address), "delta": Delta(path=str(folder / "delta"))}
        )
        fix(settings)
        with running_capture(settings) as capture:
            capture.wait_for(insert_lsn(connection))
            stream(connection)
            capture.wait_for(insert_lsn(connection))
        with connection.cursor() as cursor, cursor.copy("COPY public.corpus TO STDOUT") as copy:
            printed = {row[0]: row for row in copy.rows()}
        messages = table_messages(settings, "public", "corpus")
        yield Captured(
            settings,
            captured_tables(settings)["public", "corpus"],
            printed,
            {str(json.loads(message.key())["id"]): after_of(message.value().decode()) for message in messages},
            # Not the count: a transaction's end takes an offset too.
            tuple(
                max(message.offset() for message in messages if message.partition() == at) + 1
                for at in range(settings.kafka.partitions)
            ),
        )


def stream(connection: psycopg.Connection[Any]) -> None:
    columns = connection.execute("SELECT * FROM public.corpus LIMIT 0").description
    assert columns is not None
    others = ", ".join(column.name for column in columns[1:])
    connection.execute(f"INSERT INTO public.corpus SELECT id + {STREAMED}, {others} FROM public.corpus".encode())


def after_of(value: str) -> str:
    head, tail = '{"before":null,"after":', ',"source":{"version"'
    assert value.startswith(head)
    return value[len(head) : value.rindex(tail)]


def test_snapshot_and_stream_write_the_same_bytes(captured: Captured) -> None:
    read = {key: after for key, after in captured.afters.items() if int(key) < STREAMED}
    assert len(captured.afters) == 2 * len(read) > 10
    for key, after in read.items():
        streamed = str(int(key) + STREAMED)
        assert captured.afters[streamed] == after.replace(f'"id":{key}', f'"id":{streamed}', 1)


def test_the_topic_reads_back_as_postgres_prints(captured: Captured) -> None:
    assert captured.afters.keys() == captured.printed.keys()
    for key, after in captured.afters.items():
        values = json.loads(after)
        for column, text in zip(captured.table.columns, captured.printed[key], strict=True):
            assert decode_json(column.base_oid, values[column.name]) == text, column.type


def test_arrays_of_built_in_types_are_json_arrays(captured: Captured) -> None:
    first = json.loads(captured.afters["0"])
    written = {column.type: first[column.name] for column in captured.table.columns if column.name.startswith("a")}
    as_text = {kind for kind, value in written.items() if isinstance(value, str)}
    user_defined = {case.type + "[]" for case in USER_DEFINED}
    assert {kind.removeprefix("public.") for kind in as_text} <= {kind.removeprefix("public.") for kind in user_defined}
    assert written["numeric[]"][0] == "NaN"
    assert written["jsonpath[]"][-1] is None


@pytest.mark.parametrize("way", WAYS)
def test_delta_holds_what_postgres_prints(
    captured: Captured, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    read_by(monkeypatch, way)
    offsets = ((0,) * len(captured.ends), captured.ends)
    changes = read_changes(spark, captured.table, captured.settings.kafka, offsets, (0, 2**62))
    assert (changes.held is changes.frame) == (way != "spark")
    stored = written_and_read(captured, changes.frame, f"by_{way}")
    changes.release()
    renderers = [renderer(column.base_oid, column.type_mod) for column in captured.table.columns]
    rows = [tuple(render(value) for render, value in zip(renderers, row, strict=True)) for row in stored]
    assert len(rows) == len(captured.printed)
    for row in rows:
        assert row[0] is not None
        for column, ours, theirs in zip(captured.table.columns, row, captured.printed[row[0]], strict=True):
            assert ours == theirs, f"{column.type} in row {row[0]}"


def written_and_read(captured: Captured, frame: DataFrame, view: str) -> list[tuple[Any, ...]]:
    spec = replace(mirror_spec(captured.table), name=view)
    sink = DeltaSink(captured.settings.delta, captured.settings.pipeline, spec)
    sink.replace(frame, Position(2**40, 0, {captured.table.topic: captured.ends}))
    return list(sink.rows())


def test_large_ranges_hold_what_postgres_prints(captured: Captured, tmp_path: Path) -> None:
    """Column by column, since one that is left to Spark leaves the table to it."""
    offsets = ((0,) * len(captured.ends), captured.ends)
    left = set()
    for at, column in enumerate(captured.table.columns[1:], 1):
        table = replace(captured.table, columns=(captured.table.columns[0], column))
        try:
            [rows] = read_rows(table, captured.settings.kafka, offsets, (0, 2**62), lambda _: None, tmp_path)
        except Unusual:
            left.add(column.type)
            continue
        render = renderer(column.base_oid, column.type_mod)
        found = dict(zip(map(str, rows.column(0).to_pylist()), map(render, native_values(rows.column(1))), strict=True))
        assert found == {key: row[at] for key, row in captured.printed.items()}, column.type
    # JSON has no number for NaN and the infinities.
    assert {kind for kind in left if not kind.endswith("[]")} == {"real", "double precision", "public.numbers"}


UNFIT = [(case, text) for case in CASES for text in case.unfit]


@pytest.fixture(scope="module")
def unfit(captured: Captured, postgres: PostgresServer) -> list[tuple[ColumnInfo, str]]:
    """Columns and values, as Postgres prints them, that the column's Delta type cannot hold."""
    column_of = {case.type: captured.table.columns[at + 1] for at, case in enumerate(CASES)}
    with postgres.database().connect(options="-c TimeZone=UTC -c DateStyle=ISO") as connection:
        found = []
        for case, text in UNFIT:
            column = column_of[case.type]
            kind = case.type.replace("public.day", "date")
            ((printed,),) = connection.execute(f"SELECT format('%s', '{text}'::{kind})".encode()).fetchall()
            found.append((column, printed))
    return found


def test_spark_reads_no_value_that_its_type_cannot_hold(
    unfit: list[tuple[ColumnInfo, str]], spark: SparkSession
) -> None:
    for kind in sorted({delta_type(column) for column, _ in unfit}):
        texts = [json.loads(encoder(column.base_oid)(text)) for column, text in unfit if delta_type(column) == kind]
        frame = spark.createDataFrame([(text,) for text in texts], "text string")
        assert frame.where(parsed(frame["text"], kind).isNotNull()).collect() == [], kind


def test_the_driver_leaves_every_such_value_to_spark(unfit: list[tuple[ColumnInfo, str]], captured: Captured) -> None:
    for column, text in unfit:
        table = replace(captured.table, columns=(captured.table.columns[0], column))
        after = {column.name: json.loads(encoder(column.base_oid)(text))}
        with pytest.raises(Unusual):
            arrow_rows([Last(1, 1, 0, 0, {"id": 1}, after)], table)
        envelope = {"before": None, "after": after, "source": {"commit_lsn": 1, "ordinal": 1}, "op": "c"}
        with pytest.raises(Unusual):
            typed(bulk_parsed(Records([b'{"id":1}'], [dumps(envelope)], [0], [0]), table), table)


def test_every_type_of_the_server_is_in_the_corpus(postgres: PostgresServer) -> None:
    with fresh_database(postgres) as database, database.connect() as connection:
        connection.execute(DDL)
        covered = {
            connection.execute(f"SELECT '{case.type}'::regtype::oid::int8".encode()).fetchall()[0][0] for case in CASES
        }
        found = connection.execute(
            "SELECT t.oid::int8, t.typname FROM pg_type t WHERE typtype IN ('b', 'r', 'm')"
            " AND t.oid NOT IN (SELECT typarray FROM pg_type)"
            " AND (typnamespace = 'pg_catalog'::regnamespace OR EXISTS (SELECT FROM pg_depend d"
            " JOIN pg_extension e ON e.oid = d.refobjid WHERE d.objid = t.oid AND d.classid = 'pg_type'::regclass"
            " AND extname IN ('hstore', 'citext', 'ltree', 'uuid-ossp')))"
        ).fetchall()
    missing = {name for oid, name in found if oid not in covered}
    assert missing == NOT_STORABLE
