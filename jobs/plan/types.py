"""The types of expressions: Postgres's, as far as views translate them, each with the Spark type that holds it.

In: columns and operators. Out: frozen types. Keeps true: a DECIMAL's precision holds every value that Postgres could
have there, and `fixed` says whether Postgres prints them all with that scale.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from jobs import typemap
from jobs.tables import ColumnInfo


class Family(enum.Enum):
    """Types with the same operators."""

    BOOL = "boolean"
    INT = "integer"
    DECIMAL = "numeric(p,s)"
    FLOAT = "double precision"
    TEXT = "text"
    UUID = "uuid"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    BYTEA = "bytea"
    CHAR = "character(n)"
    NUMERIC = "numeric"
    JSON = "json"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Type:
    """`name` is Postgres's word, `spark` the Spark SQL type; `width` is an integer's or a float's bits."""

    family: Family
    name: str
    spark: str
    width: int = 0
    precision: int = 0
    scale: int = 0
    fixed: bool = True
    castable: bool = True
    padded: bool = field(default=False, compare=False)
    """Of a text: whether Postgres compares it with a character(n) as one, as it does a varchar."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A translated expression.

    `literal` is an untyped string literal's text, `null` says that it is the bare NULL, `digits` counts those of an
    integer constant, `column` is the table's column that this is.
    """

    sql: str
    type: Type
    literal: str | None = None
    null: bool = False
    c_collated: bool = False
    digits: int = 0
    column: str | None = None


BOOL: Final = Type(Family.BOOL, "boolean", "BOOLEAN")
INT2: Final = Type(Family.INT, "smallint", "SMALLINT", width=16)
INT4: Final = Type(Family.INT, "integer", "INT", width=32)
INT8: Final = Type(Family.INT, "bigint", "BIGINT", width=64)
FLOAT4: Final = Type(Family.FLOAT, "real", "FLOAT", width=32)
FLOAT8: Final = Type(Family.FLOAT, "double precision", "DOUBLE", width=64)
TEXT: Final = Type(Family.TEXT, "text", "STRING")
VARCHAR: Final = Type(Family.TEXT, "text", "STRING", padded=True)
UUID: Final = Type(Family.UUID, "uuid", "STRING")
DATE: Final = Type(Family.DATE, "date", "DATE")
TIMESTAMP: Final = Type(Family.TIMESTAMP, "timestamp", "TIMESTAMP_NTZ")
TIMESTAMPTZ: Final = Type(Family.TIMESTAMPTZ, "timestamptz", "TIMESTAMP")
BYTEA: Final = Type(Family.BYTEA, "bytea", "BINARY")
JSON: Final = Type(Family.JSON, "json", "STRING")
JSONB: Final = Type(Family.JSON, "jsonb", "STRING")
UNKNOWN: Final = Type(Family.UNKNOWN, "text", "STRING")

_PRINTED: Final = frozenset({Family.OTHER, Family.JSON})
BY_WIDTH: Final = {16: INT2, 32: INT4, 64: INT8}
DIGITS: Final = {16: 5, 32: 10, 64: 19}
INET_OID: Final = 869
CHAR_OID: Final = 18
JSON_OID: Final = 114
JSONB_OID: Final = 3802

_BY_OID: Final = {
    typemap.BOOL: BOOL,
    typemap.INT2: INT2,
    typemap.INT4: INT4,
    typemap.INT8: INT8,
    typemap.FLOAT4: FLOAT4,
    typemap.FLOAT8: FLOAT8,
    typemap.TEXT: TEXT,
    typemap.VARCHAR: VARCHAR,
    typemap.UUID: UUID,
    typemap.DATE: DATE,
    typemap.TIMESTAMP: TIMESTAMP,
    typemap.TIMESTAMPTZ: TIMESTAMPTZ,
    typemap.BYTEA: BYTEA,
    JSON_OID: JSON,
    JSONB_OID: JSONB,
    typemap.BPCHAR: Type(Family.CHAR, "character(n)", "STRING"),
    typemap.NUMERIC: Type(Family.NUMERIC, "numeric", "STRING"),
    typemap.OID: Type(Family.OTHER, "oid", "BIGINT", castable=True),
    # text(inet) prints a mask that the type's output leaves out; "char" has escapes.
    INET_OID: Type(Family.OTHER, "inet", "STRING", castable=False),
    CHAR_OID: Type(Family.OTHER, '"char"', "STRING", castable=False),
}


def type_of(column: ColumnInfo) -> Type:
    """A column's type; a domain's is its base type's."""
    found = typemap.decimal_of(column)
    if found is not None:
        return decimal(found.precision, found.scale)
    known = _BY_OID.get(column.base_oid)
    return known or Type(Family.OTHER, column.type, "STRING")


def decimal(precision: int, scale: int, *, fixed: bool = True) -> Type:
    """A numeric of which Spark's decimal holds every value."""
    assert 0 <= scale <= precision <= typemap.PRECISION_MAX
    name = f"numeric({precision},{scale})"
    return Type(Family.DECIMAL, name, f"DECIMAL({precision},{scale})", precision=precision, scale=scale, fixed=fixed)


def printed(columns: Iterable[tuple[str, Type]]) -> dict[str, str]:
    """Of these columns, those that are texts because Spark has no such type: Postgres's word for it."""
    return {name: type_.name for name, type_ in columns if type_.family in _PRINTED and type_.spark == "STRING"}


def as_decimal(typed: Typed) -> Typed:
    """An integer as the decimal that holds it; a decimal is itself."""
    if typed.type.family is not Family.INT:
        return typed
    return cast(typed, decimal(typed.digits or DIGITS[typed.type.width], 0))


def common_decimal(left: Type, right: Type) -> Type | None:
    """The decimal that holds the values of both; None if there is none."""
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    if precision > typemap.PRECISION_MAX:
        return None
    return decimal(precision, scale, fixed=left.fixed and right.fixed and left.scale == right.scale)


def cast(typed: Typed, type_: Type) -> Typed:
    """The same value as another Spark type, which must hold it."""
    same = typed.type.spark == type_.spark
    return Typed(typed.sql if same else f"CAST({typed.sql} AS {type_.spark})", type_, c_collated=typed.c_collated)
