"""Types: exact ones for what Delta holds exactly, text for the rest."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from jobs.tables import ColumnInfo
from jobs.typemap import Decimal, decimal_of, delta_type, spark_type


def column(type_: str, base_oid: int, type_mod: int = -1, type_oid: int | None = None) -> ColumnInfo:
    return ColumnInfo("c", type_, type_oid or base_oid, base_oid, type_mod)


def type_mod(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


@pytest.mark.parametrize(
    ("type_", "oid", "expected"),
    [
        ("boolean", 16, "boolean"),
        ("smallint", 21, "smallint"),
        ("integer", 23, "int"),
        ("bigint", 20, "bigint"),
        ("oid", 26, "bigint"),
        ("real", 700, "float"),
        ("double precision", 701, "double"),
        ("date", 1082, "date"),
        ("timestamp(3) without time zone", 1114, "timestamp_ntz"),
        ("timestamp with time zone", 1184, "timestamp"),
        ("bytea", 17, "binary"),
        ("text", 25, "string"),
        ("character varying(20)", 1043, "string"),
        ("character(3)", 1042, "string"),
        ("uuid", 2950, "string"),
        ("jsonb", 3802, "string"),
        ("integer[]", 1007, "string"),
        ("time without time zone", 1083, "string"),
        ("money", 790, "string"),
        ("public.mood", 99999, "string"),
        ("numeric", 1700, "string"),
    ],
)
def test_every_type_has_its_place(type_, oid, expected):
    assert delta_type(column(type_, oid)) == expected


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (10, 2, "decimal(10,2)"),
        (38, 38, "decimal(38,38)"),
        (1, 0, "decimal(1,0)"),
        (39, 2, "string"),
        (3, 5, "string"),
        (2, -3, "string"),
        (1000, 0, "string"),
    ],
)
def test_a_numeric_is_a_decimal_only_if_a_decimal_holds_it(precision, scale, expected):
    assert delta_type(column(f"numeric({precision},{scale})", 1700, type_mod(precision, scale))) == expected
    assert delta_type(column(f"numeric({precision},{scale})", 1700)) == expected


def test_a_domain_counts_as_its_base_type():
    assert delta_type(column("public.price", 1700, type_mod(12, 4), type_oid=70001)) == "decimal(12,4)"
    assert delta_type(column("public.quantity", 23, type_oid=70002)) == "int"
    assert delta_type(column("public.amount", 1700, type_oid=70003)) == "string"


def test_a_name_that_reads_like_a_numeric_is_none():
    assert decimal_of(column("numeric(4,2)", 99999)) is None
    assert decimal_of(column("numeric(4,2)", 1700)) == Decimal(4, 2)


@pytest.mark.parametrize("oid", [16, 17, 20, 21, 23, 25, 26, 700, 701, 1082, 1114, 1184, 2950])
def test_spark_types_are_the_delta_types(oid):
    assert spark_type(column("t", oid)).simpleString() == delta_type(column("t", oid))


def test_spark_decimals():
    assert spark_type(column("numeric(9,3)", 1700)) == types.DecimalType(9, 3)
