"""Rows of one version of a Delta table that have some keys, read in this process: what a Spark job takes a second for.

In: a table's path and version, columns, and keys as Arrow columns. Out: exactly the rows that have one of these keys
(NULL is a value), or TooMany where they are not few, or the table cannot be read so. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX: Final = 20_000
"""More rows than this are Spark's."""


class TooMany(Exception):  # noqa: N818  not an error: Spark does it
    """Left to Spark."""


def rows_with(
    path: str, options: Mapping[str, str], version: int, columns: Sequence[str], keys: pa.Table | None
) -> pa.Table:
    """The rows whose columns of the keys' names have the values of some row of `keys`; without keys, all of them."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    names = keys.column_names if keys is not None else []
    try:
        table = DeltaTable(path, version=version, storage_options=dict(options) or None)
        wanted = list(dict.fromkeys((*columns, *names)))
        scanner = table.to_pyarrow_dataset().scanner(columns=wanted, filter=_condition(keys))
        found = scanner.head(ROWS_MAX + 1)
    except (DeltaError, OSError, pa.ArrowException, ValueError) as error:
        raise TooMany from error
    if found.num_rows > ROWS_MAX:
        raise TooMany
    if keys is not None and len(names) > 1:
        some = set(row_values(keys, names))
        found = found.filter(pa.array([row in some for row in row_values(found, names)], pa.bool_()))
    return found.select(list(columns))


def _condition(keys: pa.Table | None) -> Any:
    """What Arrow can tell of a row by itself: its single columns' values."""
    import pyarrow as pa

    if keys is None:
        return None
    # Delta's statistics have a timestamp's milliseconds, and files would be left out by them; 0 and -0 are one number.
    if any(pa.types.is_timestamp(field.type) or pa.types.is_floating(field.type) for field in keys.schema):
        raise TooMany
    conditions = [_among(keys.column(name), name) for name in keys.column_names]
    return reduce(lambda one, other: one & other, conditions)


def row_values(table: pa.Table, columns: Sequence[str]) -> list[tuple[Hashable, ...]]:
    """The rows as tuples that are equal exactly where the rows print alike."""
    return list(zip(*(_comparable(table.column(name)) for name in columns), strict=True))


def _comparable(column: Any) -> list[Any]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_temporal(kind):
        # Python's calendar ends before Postgres's does.
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        values: list[Any] = column.cast(wide).to_pylist()
        return values
    if pa.types.is_floating(kind):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    if pa.types.is_nested(kind):
        return [repr(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def _among(values: Any, name: str) -> Any:
    """Also in a form by which files and row groups are left out."""
    import pyarrow.compute as pc

    field = pc.field(name)
    unique = values.combine_chunks().unique() if values.num_chunks else values
    some = field.isin(unique)
    ends = pc.min_max(unique)
    low, high = ends["min"], ends["max"]
    if not low.is_valid:
        return some
    between = (field >= low) & (field <= high)
    return some & (between | field.is_null() if unique.null_count else between)
