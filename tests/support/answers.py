"""What Postgres and Spark answer, as texts that can be compared, and a table that both hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from jobs.tables import ColumnInfo, TableInfo
from jobs.typemap import delta_type


def create(connection: psycopg.Connection, table: str, types: dict[str, str], rows: list[list[Any]]) -> TableInfo:
    """A table with these columns and an id, and these rows."""
    name = sql.Identifier(table)
    columns = sql.SQL(", ").join(
        sql.SQL("{} " + type_).format(sql.Identifier(column)) for column, type_ in types.items()
    )
    connection.execute(sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, {})").format(name, columns))
    marks = sql.SQL(", ").join([sql.SQL("%s")] * (len(types) + 1))
    with connection.cursor() as cursor:
        cursor.executemany(
            sql.SQL("INSERT INTO {} VALUES ({})").format(name, marks), [[n, *row] for n, row in enumerate(rows)]
        )
    return described(connection, table, ("id",))


def described(connection: psycopg.Connection, table: str, key: tuple[str, ...]) -> TableInfo:
    """A table of the schema public, as the schema topic would have it."""
    found = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), atttypid, atttypmod FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        [table],
    ).fetchall()
    infos = tuple(ColumnInfo(name, type_, int(oid), int(oid), mod, name in key) for name, type_, oid, mod in found)
    return TableInfo(1, "public", table, 1, "d", key, infos, "t", 1)


def printed(connection: psycopg.Connection, query: str) -> list[list[str | None]]:
    """Rows as Postgres prints them."""
    result = connection.execute(query.encode()).pgresult
    assert result is not None
    cells = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
    return [[None if cell is None else cell.decode() for cell in row] for row in cells]


def held(spark: SparkSession, connection: psycopg.Connection, table: TableInfo) -> DataFrame:
    """The table in Spark, with Delta's types."""
    rows = printed(connection, f"SELECT * FROM {table.table}")
    schema = ", ".join(f"`{column.name}` string" for column in table.columns)
    frame = spark.createDataFrame([tuple(row) for row in rows], schema)
    return frame.selectExpr(*(cell(column) for column in table.columns))


def cell(column: ColumnInfo) -> str:
    """What Postgres prints, read as the column's Delta type."""
    type_, name = delta_type(column), f"`{column.name}`"
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        name = f"CASE WHEN instr({name}, '-') > 5 THEN '+' || {name} ELSE {name} END"
    if type_ == "binary":
        return f"unhex(substring({name}, 3)) AS `{column.name}`"
    return f"CAST({name} AS {type_}) AS `{column.name}`"


def as_printed(value: Any) -> str | None:
    """A Spark value as Postgres prints it."""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        named = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return named.get(repr(value), repr(value)).removesuffix(".0")
    return None if value is None else str(value)


def answered(spark: SparkSession, query: str) -> list[list[str | None]]:
    """Rows of Spark as Postgres would print them; Spark prints days and times, which Python cannot always hold."""
    frame = spark.sql(query)
    zone = {"timestamp": " || '+00'", "timestamp_ntz": "", "date": ""}
    columns = [
        f"(CAST(`{field.name}` AS STRING){zone[field.dataType.typeName()]}) AS `{field.name}`"
        if field.dataType.typeName() in zone
        else f"`{field.name}`"
        for field in frame.schema.fields
    ]
    # By Arrow, as apply does: collect() would change the exponents of small decimals.
    found = frame.selectExpr(*columns).toArrow()
    return [
        [as_printed(value) for value in row]
        for row in zip(*(column.to_pylist() for column in found.columns), strict=True)
    ]
