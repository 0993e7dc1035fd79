"""Which rows print alike: of tables in this process, and of frames of Spark.

In: rows of two sides. Out: which of one side are among the other's, which of these have the same values. Keeps true:
values are equal exactly where they print alike: NULL is NULL, NaN is NaN, and 0 is not -0. Nothing is done row by row
in Python but what types that are made of others need: a refresh has up to a quarter of a million rows here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import Column

_AT: Final = "at"


@dataclass(frozen=True, slots=True)
class Met:
    """Rows beside those of the other side that have their keys; `places` say where these are, null where none is."""

    places: pl.Series
    _rows: pl.DataFrame
    _others: pl.DataFrame
    _names: Mapping[str, str]

    def differ(self, columns: Sequence[str]) -> pl.Series:
        """Whether a row has met none, or one that is not alike in these columns."""
        return _differ(self.places.is_null(), self._rows, self._others, [self._names[column] for column in columns])


def met(rows: pa.Table, others: pa.Table, key: Sequence[str], columns: Sequence[str]) -> Met:
    """Each row with the other that has its key; `columns` are to be compared, the key's among them."""
    import polars as pl

    names = {column: str(at) for at, column in enumerate(columns)}
    ours, theirs = _frames(rows.select(list(columns)), others.select(list(columns)))
    own = [names[each] for each in key]
    known = theirs.select(own).with_row_index(_AT).unique(own, keep="last")
    joined = ours.select(own).join(known, on=own, how="left", nulls_equal=True, maintain_order="left")
    places = joined.get_column(_AT)
    return Met(places, ours, theirs.select(pl.all().gather(places)), names)


def among_rows(rows: pa.Table, others: pa.Table, *, is_in: bool = True) -> pa.Table:
    """The rows that have the values of one of the others in all columns of these, or that have not."""
    import pyarrow as pa

    ours, theirs = _frames(rows.select(others.column_names), others)
    how: Any = "semi" if is_in else "anti"
    found = ours.with_row_index(_AT).join(theirs, on=theirs.columns, how=how, nulls_equal=True, maintain_order="left")
    return rows.take(pa.array(found.get_column(_AT).to_arrow(), pa.int64()))


def has_doubles(rows: pa.Table, columns: Sequence[str]) -> bool:
    """Whether two of the rows are alike in these columns."""
    ours = as_printed(rows.select(list(columns)).columns)
    return ours.n_unique() < ours.height


def sides_differ(olds: Any, news: Any, names: Sequence[str]) -> Any:
    """Whether two structs are not alike in these columns, or only one of them is there."""
    ours, theirs = (as_printed([each.is_valid(), *(field_of(each, name) for name in names)]) for each in (olds, news))
    is_there, *fields = ours.columns
    return mask(_differ(ours[is_there] != theirs[is_there], ours, theirs, fields))


def field_of(structs: Any, name: str) -> Any:
    """What the structs have in a field; null where there is none."""
    import pyarrow.compute as pc

    return pc.struct_field(structs, [structs.type.get_field_index(name)])


def mask(values: pl.Series) -> Any:
    """For Arrow."""
    import pyarrow as pa

    return pa.array(values.to_arrow(), pa.bool_())


def row_values(table: pa.Table, columns: Sequence[str]) -> list[tuple[Hashable, ...]]:
    """The rows as tuples that are equal exactly where the rows print alike; for a few."""
    return list(zip(*(comparable(table.column(name)) for name in columns), strict=True))


def comparable(column: Any) -> list[Any]:
    """A column's values, equal exactly where they print alike."""
    values: list[Any] = printed(column).to_pylist()
    return values


def printed(column: Any) -> Any:
    """A column whose values are equal exactly where these print alike."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_temporal(kind):
        # Python's calendar ends before Postgres's does.
        return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_floating(kind):
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        one_nan = pc.if_else(pc.is_nan(whole), pa.scalar(float("nan"), kind), whole)
        return one_nan.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    if pa.types.is_nested(kind):
        return pa.array([repr(value) for value in column.to_pylist()], pa.string())
    return column


def alike(ours: str, theirs: str, types: Mapping[str, str]) -> Column:
    """Whether two structs of a frame of Spark are both there and hold the same, as it prints."""
    from pyspark.sql import functions as F  # noqa: N812

    def value(side: str, name: str) -> Column:
        column = F.col(side).getField(name)
        # 0 and -0 are equal and print differently.
        return column.cast("string") if types[name] in ("float", "double") else column

    same = [value(ours, name).eqNullSafe(value(theirs, name)) for name in types]
    return reduce(lambda one, other: one & other, same, F.col(ours).isNotNull() & F.col(theirs).isNotNull())


def as_printed(columns: Sequence[Any]) -> pl.DataFrame:
    """Columns as they print, numbered."""
    return _numbered([printed(column) for column in columns])


def _frames(rows: pa.Table, others: pa.Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both sides as they print, in the same types."""
    ours = [printed(column) for column in rows.columns]
    theirs = [printed(column) for column in others.columns]
    same = [other if other.type == own.type else other.cast(own.type) for own, other in zip(ours, theirs, strict=True)]
    return _numbered(ours), _numbered(same)


def _numbered(columns: Sequence[Any]) -> pl.DataFrame:
    import polars as pl
    import pyarrow as pa

    found = pl.from_arrow(pa.table({str(at): column for at, column in enumerate(columns)}))
    assert isinstance(found, pl.DataFrame)
    return found


def _differ(differs: pl.Series, rows: pl.DataFrame, others: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Whether rows side by side differ already, or in one of these columns."""
    for name in names:
        differs |= rows[name].ne_missing(others[name])
    return differs
