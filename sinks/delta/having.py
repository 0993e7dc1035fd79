"""Rows of data files on a local disk that have wanted values, read by polars.

In: a table's folder and schema, its files, and wanted values of columns, NULL being one. Out: for each file the rows
that have one of them in each of these columns, with their places in it, marked as deleted or not. Keeps true: other
columns are decoded only where a wanted value is met, which makes a look for a few keys cost little more than the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

PLACE: Final = "__place"
"""The number of the row in its file."""
FILES_AT_ONCE: Final = 32


def can_read(schema: pa.Schema, columns: Iterable[str]) -> bool:
    """Whether what polars says of these columns is what Arrow says."""
    import pyarrow as pa

    is_plain = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_decimal128,
        pa.types.is_floating,
        pa.types.is_date32,
        pa.types.is_timestamp,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return all(any(test(schema.field(name).type) for test in is_plain) for name in columns)


def rows_having(
    folder: str,
    files: Sequence[str],
    schema: pa.Schema,
    columns: Sequence[str],
    among: Mapping[str, Any],
    most: int | None = None,
) -> Iterator[tuple[str, pa.Table]]:
    """Of each file that has some; the columns, and PLACE; of a file at most so many."""
    import polars as pl

    names = list(dict.fromkeys((*columns, *among)))
    empty = pl.from_arrow(_schema_of(schema, names).empty_table())
    assert isinstance(empty, pl.DataFrame)
    condition = _condition({name: _series(values, schema.field(name).type) for name, values in among.items()})
    for at in range(0, len(files), FILES_AT_ONCE):
        some = files[at : at + FILES_AT_ONCE]
        scans = (_scan(Path(folder, file), empty.schema, columns, condition) for file in some)
        found = pl.collect_all([scan if most is None else scan.head(most) for scan in scans])
        for file, rows in zip(some, found, strict=True):
            if rows.height:
                yield file, rows.to_arrow()


def _schema_of(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in columns])


def _scan(path: Path, schema: pl.Schema, columns: Sequence[str], condition: pl.Expr) -> pl.LazyFrame:
    import polars as pl

    # A file from before a column came has NULL in it. Bounds of texts are told differently by each writer.
    rows = pl.scan_parquet(
        path,
        schema=schema,
        row_index_name=PLACE,
        missing_columns="insert",
        extra_columns="ignore",
        use_statistics=False,
        hive_partitioning=False,
        glob=False,
    )
    return rows.filter(condition).select([*columns, PLACE])


def _condition(among: Mapping[str, pl.Series]) -> pl.Expr:
    import polars as pl

    conditions = [pl.col(name).is_in(values.implode(), nulls_equal=True) for name, values in among.items()]
    return pl.all_horizontal(conditions) if len(conditions) > 1 else conditions[0]


def _series(values: Any, kind: pa.DataType) -> pl.Series:
    import polars as pl

    found = pl.from_arrow(values.unique().cast(kind))
    assert isinstance(found, pl.Series)
    return found
