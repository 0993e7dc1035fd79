"""Last changes to an Arrow table in Delta's types, in plain Python: jobs.rows for a few records.

In: changes with parsed JSON. Out: the same columns that jobs.rows gives. Keeps true: a value is either taken exactly or
not at all (Unusual); the common form of each type is known here, every other form is Spark's to judge.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types

from cdc.names import delta_columns
from cdc.values import decoder
from jobs.tables import ColumnInfo, TableInfo
from jobs.typemap import decimal_of, delta_type, spark_type
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT

_UNFIT_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)


class Unusual(Exception):  # noqa: N818
    """Something that is left to Spark, to read it or to refuse it by name."""


@dataclass(frozen=True, slots=True)
class Last:
    """The last change of a key; `after` is None for a delete.

    `op` is as in its envelope, empty for a tombstone; `ms` is its commit's time, `produced` Kafka's, in milliseconds.
    """

    lsn: int
    ordinal: int
    offset: int
    partition: int
    key: Mapping[str, Any]
    after: Mapping[str, Any] | None
    op: str = ""
    ms: int = 0
    produced: int = 0


def spark_schema(table: TableInfo) -> types.StructType:
    """The schema of the rows."""
    names = delta_columns(column.name for column in table.columns)
    fields = [types.StructField(name, spark_type(column)) for name, column in zip(names, table.columns, strict=True)]
    control = [(OP, types.StringType()), (LSN, types.LongType()), (AT, types.StringType())]
    return types.StructType([*fields, *(types.StructField(name, kind) for name, kind in control)])


def arrow_rows(changes: Sequence[Last], table: TableInfo) -> pa.Table:
    """The rows, typed."""
    names = delta_columns(column.name for column in table.columns)
    try:
        columns = {name: _column(changes, column) for name, column in zip(names, table.columns, strict=True)}
    except (ValueError, TypeError, KeyError, OverflowError, InvalidOperation, binascii.Error, pa.ArrowException) as odd:
        raise Unusual(type(odd).__name__) from odd
    columns[OP] = pa.array([DELETE if change.after is None else UPSERT for change in changes], pa.string())
    columns[LSN] = pa.array([change.lsn for change in changes], pa.int64())
    columns[AT] = pa.array([f"{table.topic}@{change.partition}:{change.offset}" for change in changes], pa.string())
    return pa.table(columns)


def _column(changes: Sequence[Last], column: ColumnInfo) -> Any:
    name = column.name
    if column.key:
        found = [change.key[name] for change in changes]
    else:
        # A column that came later than the record is absent from it: null, as in the table.
        found = [None if change.after is None else change.after.get(name) for change in changes]
    convert, kind = _converter(column)
    return pa.array([None if value is None else convert(value) for value in found], kind)


def _converter(column: ColumnInfo) -> tuple[Callable[[Any], Any], Any]:
    decimal = decimal_of(column)
    if decimal is not None:
        return _decimal, pa.decimal128(decimal.precision, decimal.scale)
    kind = delta_type(column)
    if kind == "string":
        return _text(decoder(column.base_oid)), pa.string()
    return _CONVERTERS[kind]


def _text(decode: Callable[[Any], str]) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        text = decode(value) if isinstance(value, str | list) else None
        if not isinstance(text, str):
            raise TypeError("not a text")
        return text

    return convert


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not a boolean")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not an integer")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in _UNFIT_NUMBERS):
        raise TypeError("not a number")
    return float(value)


def _decimal(value: Any) -> Decimal:
    number = Decimal(value if isinstance(value, str) else "")
    if not number.is_finite():
        raise ValueError("no decimal")
    return number


def _date(value: Any) -> dt.date:
    if not _DATE.fullmatch(value):
        raise ValueError("another calendar")
    return dt.date.fromisoformat(value)


def _naive(value: Any) -> dt.datetime:
    if not _MOMENT.fullmatch(value):
        raise ValueError("another form")
    return dt.datetime.fromisoformat(value)


def _instant(value: Any) -> dt.datetime:
    if not value.endswith("Z"):
        raise ValueError("another form")
    return _naive(value[:-1]).replace(tzinfo=dt.UTC)


def _binary(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


_CONVERTERS: Final[dict[str, tuple[Callable[[Any], Any], Any]]] = {
    "boolean": (_boolean, pa.bool_()),
    "smallint": (_integer, pa.int16()),
    "int": (_integer, pa.int32()),
    "bigint": (_integer, pa.int64()),
    "float": (_float, pa.float32()),
    "double": (_float, pa.float64()),
    "date": (_date, pa.date32()),
    "timestamp": (_instant, pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": (_naive, pa.timestamp("us")),
    "binary": (_binary, pa.binary()),
}
