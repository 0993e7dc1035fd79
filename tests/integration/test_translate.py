"""Every expression that views support, computed by real Postgres and by real Spark over awkward values, as text."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from cdc.errors import ConfigError
from cdc.postgres import SESSION
from jobs.declare import declare_view, mirror_spec
from jobs.declare.functions import FUNCTIONS
from jobs.declare.literals import escaped_string
from jobs.declare.parse import parse_select
from jobs.declare.source import Source
from jobs.declare.translate import RULES
from jobs.tables import TableInfo
from tests.support.answers import answered, create, held, printed
from tests.support.servers import PostgresServer, fresh_database
from tests.support.view_expressions import AWKWARD_TEXTS as TEXTS
from tests.support.view_expressions import Expressions

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "s": ("text", TEXTS),
    "t": ("text", TEXTS),
    "v": ("varchar(400)", TEXTS),
    "c": ("char(5)", ["", "a", "ab  ", " b", "abcde", "é"]),
    "b": ("boolean", [True, False]),
    "i2": ("smallint", [-32768, -7, -1, 0, 1, 2, 7, 32767]),
    "i4": ("integer", [-(2**31), -1001, -7, -1, 0, 1, 2, 7, 1001, 2**31 - 1]),
    "i8": ("bigint", [-(2**63), -7, -1, 0, 1, 2, 7, 2**53 + 1, 2**63 - 1]),
    "k4": ("integer", [-7, -3, -2, -1, 0, 1, 2, 3, 7]),
    "n4": ("integer", [-3, -2, -1, 1, 2, 3]),
    "d": ("numeric(10,2)", ["-99999999.99", "-1.50", "-0.01", "0", "0.005", "1.5", "2.50", "12345.67", "99999999.99"]),
    "d2": (
        "numeric(20,6)",
        ["-1.500000", "0", "0.000001", "1.499999", "1.500000", "-2.500000", "12345678901234.567891"],
    ),
    "d0": ("numeric(38,0)", ["0", "-1", "9" * 38]),
    "d1": (
        "numeric(12,4)",
        ["0.0001", "-0.0100", "1.0000", "99.9999", "-10000.0000", "10000.0001", "99999999.9999", "3.0000"],
    ),
    "d2p": ("numeric(15,6)", ["0.000001", "0.0099", "-0.01", "1", "9999", "10000", "123456789.123456", "-7"]),
    "num": ("numeric", ["0", "1.005", "-1.005", "1.0050000", "1e-50", "2.675", "-2.675", "1234567.891", "0.0000"]),
    "f8": ("double precision", ["0", "-0", "1.5", "0.1", "-1e300", "NaN", "Infinity", "-Infinity", "7"]),
    "f4": ("real", ["0", "0.1", "1.5", "NaN", "7"]),
    "dt": ("date", ["0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"]),
    "dm": ("date", ["0044-03-15", "1582-10-15", "1969-12-31", "2023-01-31", "2024-02-29", "2024-12-31", "9998-06-30"]),
    "late": ("date", ["0001-01-01", "2024-02-29", "10000-01-01", "294246-01-01"]),
    "ts": (
        "timestamp",
        ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.5", "2024-02-29 12:00:00"],
    ),
    "tm": (
        "timestamp",
        ["0044-01-31 00:00:01", "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00", "2024-12-29 23:30:00.5"],
    ),
    "lts": ("timestamp", ["0044-03-15 01:02:03.4", "2024-02-29 12:00:00", "10000-01-01 00:00:00.000001"]),
    "tz": (
        "timestamptz",
        ["0002-01-01 00:00:00Z", "1969-12-31 23:59:59.999999Z", "2024-02-29 23:30:00-05", "2024-03-01 00:00:00.100Z"],
    ),
    "u": (
        "uuid",
        [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-9c0b-4ef8-bb6d-6bb9bd380a11",
        ],
    ),
    "e": ("mood", ["sad", "ok", "It's"]),
    "j": ("jsonb", ['{"b": 1, "a": [1, 2.50]}', "null", '"x"']),
    "ar": ("text[]", [["a", None, "b c"], []]),
    "iv": ("interval", ["1 day", "-2 mons", "25:00:00"]),
    "by": ("bytea", [b"", b"\x00\xff", b"ab"]),
}

CASES = (Path(__file__).parent / "view_expressions.txt").read_text(encoding="utf-8").splitlines()
CASES += ["s LIKE '_\n_'", "s = 'a\nb'"]
FILTERS = (
    "s = t",
    "NOT b",
    "i4 IN (1, NULL)",
    "i4 NOT IN (1, NULL)",
    "s LIKE 'a\\\\_b'",
    "d < 2.495",
    "tz < '2024-03-01 00:00:00+00'",
    "b OR NULL",
)
AT_ONCE = 64
RANDOM_CASES = 100
LENGTH_MAX = 300
# Both must fail, over one row of these values.
FAILURES = [
    "i2 + i2",
    "i4 + 1",
    "i8 + 1",
    "i4 * 2",
    "-mi4",
    "abs(mi4)",
    "mi4 / -1",
    "mi8 / -1",
    "i4 / 0",
    "i4 % 0",
    "d / 0",
    "d / (i2 - i2)",
    "i4::smallint",
    "i8::int",
    "d::numeric(4,2)",
    "d::smallint",
    "i4::numeric(5,2)",
    "- mi8",
    "mi2 * i2",
    "num::numeric(4,2)",
    "i4 - mi4",
]
FAILING = {
    "i2": ("smallint", 32767),
    "mi2": ("smallint", -32768),
    "i4": ("integer", 2**31 - 1),
    "mi4": ("integer", -(2**31)),
    "i8": ("bigint", 2**63 - 1),
    "mi8": ("bigint", -(2**63)),
    "d": ("numeric(10,2)", "99999999.99"),
    "num": ("numeric", "99.995"),
}


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[psycopg.Connection]:
    with fresh_database(postgres) as database, database.connect() as connection:
        for name, value in SESSION.items():
            if name != "search_path":
                connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'It''s')")
        yield connection


def changes(spark: SparkSession, connection: psycopg.Connection, table: TableInfo) -> None:
    """The table in Spark as `changes`."""
    held(spark, connection, table).createOrReplaceTempView("changes")


def declared(table: TableInfo, expressions: list[str]) -> Any:
    outputs = ", ".join(f"{expression} AS c{n}" for n, expression in enumerate(expressions))
    return declare_view(
        "v", Source("v.sql", f"SELECT id, {outputs} FROM {table.table}"), {("public", table.table): table}
    )


def awkward_rows() -> list[list[Any]]:
    dice = random.Random(20261118)
    rows: list[list[Any]] = [[None] * len(COLUMNS)]
    for n in range(max(len(values) for _, values in COLUMNS.values()) * 2):
        row = [
            values[(n + at) % len(values)] if n < len(values) else dice.choice(values)
            for at, (_, values) in enumerate(COLUMNS.values())
        ]
        rows.append([None if dice.random() < 0.06 else value for value in row])
    return rows


@pytest.fixture(scope="module")
def things(connection: psycopg.Connection, spark: SparkSession) -> TableInfo:
    table = create(connection, "things", {name: type_ for name, (type_, _) in COLUMNS.items()}, awkward_rows())
    changes(spark, connection, table)
    return table


@pytest.mark.parametrize("at", range(0, len(CASES), AT_ONCE))
def test_spark_answers_what_postgres_answers(connection, spark, things, at):
    changes(spark, connection, things)
    assert differing(connection, spark, things, CASES[at : at + AT_ONCE]) == {}


def differing(
    connection: psycopg.Connection, spark: SparkSession, table: TableInfo, cases: list[str]
) -> dict[str, tuple[Any, ...]]:
    """The cases that the two engines answer differently: in which row, and how."""
    spec = declared(table, cases)
    expected = printed(connection, f"SELECT * FROM ({spec.postgres_sql}) v ORDER BY id")
    got = answered(spark, f"SELECT * FROM ({spec.spark_sql}) ORDER BY id")
    wrong: dict[str, tuple[Any, ...]] = {}
    for want_row, got_row in zip(expected, got, strict=True):
        for case, want, have in zip(["id", *cases], want_row, got_row, strict=True):
            if want != have:
                wrong.setdefault(case, (want_row[0], want, have))
    return wrong


def test_random_expressions_are_answered_alike_or_refused(connection, spark, things):
    changes(spark, connection, things)
    seed = int(os.environ.get("AFTERIMAGE_SEED", "20261118"))
    source = Expressions(seed)
    cases: list[str] = []
    while len(cases) < RANDOM_CASES:
        case = source.any()
        if len(case) < LENGTH_MAX and accepted(things, case):
            cases.append(case)
    assert differing(connection, spark, things, cases) == {}, f"AFTERIMAGE_SEED={seed}"


def accepted(table: TableInfo, case: str) -> bool:
    try:
        declared(table, [case])
    except ConfigError:
        return False
    return True


def test_the_comparison_sees_a_wrong_answer(connection, spark, things):
    changes(spark, connection, things)
    spark.table("changes").selectExpr("* EXCEPT (s)", "concat(s, ' ') AS s").createOrReplaceTempView("changes")
    assert set(differing(connection, spark, things, ["s", "length(s)", "k4"])) == {"s", "length(s)"}


@pytest.mark.parametrize("case", [case for case in CASES if case in FILTERS])
def test_filters_keep_the_same_rows(connection, spark, things, case):
    changes(spark, connection, things)
    text = f"SELECT id FROM public.things o WHERE {case}"
    spec = declare_view("v", Source("v.sql", text), {("public", "things"): things})
    expected = printed(connection, f"SELECT * FROM ({spec.postgres_sql}) v ORDER BY id")
    assert answered(spark, f"SELECT * FROM ({spec.spark_sql}) ORDER BY id") == expected


def test_spark_fails_where_postgres_fails(connection, spark):
    types = {name: type_ for name, (type_, _) in FAILING.items()}
    table = create(connection, "limits", types, [[value for _, value in FAILING.values()]])
    changes(spark, connection, table)
    for case in FAILURES:
        spec = declared(table, [case])
        with pytest.raises(psycopg.DataError):
            printed(connection, spec.postgres_sql)
        with pytest.raises(PySparkException):
            answered(spark, spec.spark_sql)


def test_every_supported_expression_is_among_the_cases(things):
    seen: set[Any] = set()
    for case in CASES:
        select = parse_select(Source("v.sql", f"SELECT {case} AS c FROM t"))
        for node in select.outputs[0].walk():
            seen.add(str(node.this).lower() if isinstance(node, exp.Anonymous) else type(node))
    supported = {kind for kind, rule in RULES.items() if rule.translate is not escaped_string}
    assert supported | set(FUNCTIONS) <= seen


def test_a_mirror_selects_the_whole_table(connection, spark, things):
    changes(spark, connection, things)
    spec = mirror_spec(things)
    expected = printed(connection, f"SELECT * FROM ({spec.postgres_sql}) v ORDER BY id")
    got = answered(spark, f"SELECT * FROM ({spec.spark_sql}) ORDER BY id")
    # Python has no 32-bit float, and no year 10000; Spark's own print of those days has a plus sign.
    places = [at for at, name in enumerate(spec.columns) if name not in ("f4", "late", "lts")]
    assert [[row[at] for at in places] for row in got] == [[row[at] for at in places] for row in expected]
