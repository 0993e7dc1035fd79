"""Rows of one version of a Delta table that have some keys, read in this process: what a Spark job takes a second for.

In: a table's path and version, columns, and keys as Arrow columns. Out: exactly the rows that have one of these keys
(NULL is a value), or TooMany where they are not few, or the table cannot be read so. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from jobs.refresh.alike import among_rows
from jobs.refresh.data_files import ROWS_MAX, DataFiles, data_files
from sinks.delta.opened import answer_at

if TYPE_CHECKING:
    import pyarrow as pa

BYTES_MAX: Final = 64 << 20
"""More than this is Spark's."""


class TooMany(Exception):  # noqa: N818  not an error: Spark does it
    """Left to Spark."""


def rows_with(
    path: str, options: Mapping[str, str], version: int, columns: Sequence[str], keys: pa.Table | None
) -> pa.Table:
    """The rows whose columns of the keys' names have the values of some row of `keys`; without keys, all of them."""
    names = keys.column_names if keys is not None else []
    wanted = list(dict.fromkeys((*columns, *names)))
    among = {name: keys.column(name) for name in names} if keys is not None else {}
    found = rows_among(path, options, version, wanted, among)
    if keys is not None and len(names) > 1:
        found = among_rows(found, keys)
    return found.select(list(columns))


def rows_among(
    path: str, options: Mapping[str, str], version: int, columns: Sequence[str], among: Mapping[str, Any]
) -> pa.Table:
    """The rows that have one of the given values in each of the given columns; of none given, all rows."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        files = answer_at(path, options, version, data_files)
        try:
            return _scanned(files, columns, among, _condition(among, _as_it_is))
        except pa.ArrowNotImplementedError:
            # Of the texts in files that delta-rs wrote, Arrow compares none as they are.
            return _scanned(files, columns, among, _condition(among, _as_text))
    except (DeltaError, OSError, pa.ArrowException, ValueError) as error:
        raise TooMany from error


def _scanned(files: DataFiles, columns: Sequence[str], among: Mapping[str, Any], condition: Any) -> pa.Table:
    import pyarrow as pa

    batches = _bounded(files.batches(columns, among, condition))
    return pa.Table.from_batches(batches, files.schema_of(columns))


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As long as they are few."""
    rows = size = 0
    for batch in batches:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > ROWS_MAX or size > BYTES_MAX:
            raise TooMany
        yield batch


def _condition(among: Mapping[str, Any], field_of: Callable[[str, Any], Any]) -> Any:
    """What Arrow can tell of a row by itself: its single columns' values."""
    import pyarrow as pa

    # Delta's statistics have a timestamp's milliseconds, and files would be left out by them; 0 and -0 are one number.
    kinds = [values.type for values in among.values()]
    if any(pa.types.is_timestamp(kind) or pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in kinds):
        raise TooMany
    conditions = [_among(values, field_of(name, values.type)) for name, values in among.items()]
    return reduce(lambda one, other: one & other, conditions) if conditions else None


def _as_it_is(name: str, _: Any) -> Any:
    import pyarrow.compute as pc

    return pc.field(name)


def _as_text(name: str, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.field(name).cast(kind) if pa.types.is_string(kind) or pa.types.is_large_string(kind) else pc.field(name)


def _among(values: Any, field: Any) -> Any:
    """Also in a form by which files and row groups are left out."""
    import pyarrow.compute as pc

    unique = values.unique()
    some = field.isin(unique)
    ends = pc.min_max(unique)
    low, high = ends["min"], ends["max"]
    if not low.is_valid:
        return some
    between = (field >= low) & (field <= high)
    return some & (between | field.is_null() if unique.null_count else between)
