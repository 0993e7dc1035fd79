"""Postgres types to Delta types, by docs/FORMATS.md: what has an exact Delta type gets it, the rest is text.

In: a column of the schema topic. Out: the Delta (and Spark SQL) type. Domains count as their base type. A numeric
without a declared precision, or one that a decimal cannot hold, is text: never a rounded number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jobs.tables import ColumnInfo, TableInfo

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

BOOL: Final = 16
BYTEA: Final = 17
INT8: Final = 20
INT2: Final = 21
INT4: Final = 23
TEXT: Final = 25
OID: Final = 26
FLOAT4: Final = 700
FLOAT8: Final = 701
BPCHAR: Final = 1042
VARCHAR: Final = 1043
DATE: Final = 1082
TIMESTAMP: Final = 1114
TIMESTAMPTZ: Final = 1184
NUMERIC: Final = 1700
UUID: Final = 2950

PRECISION_MAX: Final = 38
FIRST_USER_OID: Final = 16384
_HEADER: Final = 4
_SCALE_BITS: Final = 0x7FF

_PLAIN: Final = {
    BOOL: "boolean",
    INT2: "smallint",
    INT4: "int",
    INT8: "bigint",
    OID: "bigint",
    FLOAT4: "float",
    FLOAT8: "double",
    DATE: "date",
    TIMESTAMP: "timestamp_ntz",
    TIMESTAMPTZ: "timestamp",
    BYTEA: "binary",
}
_DECLARED = re.compile(r"^numeric\((\d+),(-?\d+)\)$")


@dataclass(frozen=True, slots=True)
class Decimal:
    """A numeric that a Delta decimal holds exactly."""

    precision: int
    scale: int


def decimal_of(column: ColumnInfo) -> Decimal | None:
    """The decimal that a numeric column is; None when it is not declared, or not one that Delta can hold."""
    if column.base_oid != NUMERIC:
        return None
    found = _from_type_mod(column.type_mod) or _from_text(column.type)
    if found is None or not 0 <= found.scale <= found.precision <= PRECISION_MAX:
        return None
    return found


def delta_type(column: ColumnInfo) -> str:
    """The Delta type in Spark SQL's words: `decimal(10,2)`, `timestamp_ntz`, `string`."""
    decimal = decimal_of(column)
    if decimal is not None:
        return f"decimal({decimal.precision},{decimal.scale})"
    return _PLAIN.get(column.base_oid, "string")


def delta_types(table: TableInfo) -> tuple[str, ...]:
    """The types of the table's columns, in order."""
    return tuple(delta_type(column) for column in table.columns)


def spark_type(column: ColumnInfo) -> DataType:
    """The same as a pyspark type; needs no JVM."""
    from pyspark.sql import types

    decimal = decimal_of(column)
    if decimal is not None:
        return types.DecimalType(decimal.precision, decimal.scale)
    classes: dict[str, Any] = {
        "boolean": types.BooleanType,
        "smallint": types.ShortType,
        "int": types.IntegerType,
        "bigint": types.LongType,
        "float": types.FloatType,
        "double": types.DoubleType,
        "date": types.DateType,
        "timestamp_ntz": types.TimestampNTZType,
        "timestamp": types.TimestampType,
        "binary": types.BinaryType,
        "string": types.StringType,
    }
    found: DataType = classes[delta_type(column)]()
    return found


def _from_type_mod(type_mod: int) -> Decimal | None:
    # numerictypmodin: ((precision << 16) | (scale & 0x7ff)) + VARHDRSZ, the scale being a signed 11-bit number.
    if type_mod < _HEADER:
        return None
    packed = type_mod - _HEADER
    scale = packed & _SCALE_BITS
    return Decimal(packed >> 16 & 0xFFFF, (scale ^ 1024) - 1024)


def _from_text(text: str) -> Decimal | None:
    match = _DECLARED.match(text)
    return Decimal(int(match[1]), int(match[2])) if match else None
