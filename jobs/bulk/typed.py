"""Arrow columns as JSON has them to the columns of a Delta table: jobs.rows for many rows at once.

In: the newest change of each key. Out: the rows that are there, in Delta's names and types, the key's columns from the
key. Keeps true: a value is taken exactly, or the whole range is Unusual and Spark's to judge.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc.names import delta_columns
from jobs.bulk.parse import KEY, KEY_BEGINNING, carried, column_name, json_rows, json_type
from jobs.native_rows import Unusual
from jobs.tables import TableInfo
from jobs.text_rows import arrow_type
from jobs.typemap import delta_type

KEYS_AT_ONCE: Final = 100_000
"""As Python's objects they take several times their length."""
_DIGITS_MAX: Final = 38


def typed(rows: pa.Table, table: TableInfo) -> pa.Table:
    """The same rows, typed; all of them are upserts."""
    values = _keys(rows.column(KEY), table)
    values |= {column.name: rows.column(column_name(at)) for at, column in enumerate(carried(table))}
    names = delta_columns(column.name for column in table.columns)
    try:
        arrays = [_as(values[column.name], delta_type(column)) for column in table.columns]
    except (pa.ArrowException, ValueError, binascii.Error) as odd:
        raise Unusual(type(odd).__name__) from odd
    return pa.table(arrays, names=list(names))


def _keys(keys: Any, table: TableInfo) -> dict[str, Any]:
    columns = [column for column in table.columns if column.key]
    schema = pa.schema([(column.name, json_type(column)) for column in columns])
    if not len(keys):
        return {field.name: pa.chunked_array([], field.type) for field in schema}
    some = (keys.slice(first, KEYS_AT_ONCE).to_pylist() for first in range(0, len(keys), KEYS_AT_ONCE))
    found = pa.concat_tables([json_rows(texts, schema, KEY_BEGINNING) for texts in some])
    if any(values.null_count for values in found.columns):
        raise Unusual("key")
    return {column.name: found.column(at) for at, column in enumerate(columns)}


def _as(values: Any, kind: str) -> Any:
    wanted = arrow_type(kind)
    if values.type == wanted:
        return values
    if kind == "binary":
        return pa.array([None if text is None else _bytes(text) for text in values.to_pylist()], wanted)
    if pa.types.is_decimal(wanted):
        _require_digits(values)
    return values.cast(wanted)


def _require_digits(texts: Any) -> None:
    """Arrow reads more digits than a decimal has room for, and keeps what is left of them."""
    if (pc.max(pc.binary_length(texts)).as_py() or 0) <= _DIGITS_MAX:
        return
    digits = pc.utf8_ltrim(pc.replace_substring_regex(texts, "[-.]", ""), "0")
    if (pc.max(pc.utf8_length(digits)).as_py() or 0) > _DIGITS_MAX:
        raise Unusual("decimal")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
