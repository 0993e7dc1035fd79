"""Changed rows as pairs, before and after, put together in this process.

In: a relation's rows from before, and its changes, both few. Out: one Arrow row for each key that is not alike on both
sides: structs OLD and NEW, null where there was no row. Keeps true: a key is paired with itself alone, NULL with NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.refresh.alike import field_of, met
from jobs.upkeep.tables import NEW, OLD
from sinks.protocol import OP, UPSERT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def paired(before: pa.Table, changes: pa.Table, columns: Sequence[str], key: Sequence[str]) -> pa.Table:
    """The pairs; `changes` have OP."""
    import polars as pl
    import pyarrow as pa

    found = met(changes, before, key, columns)
    is_upsert = pl.Series(changes.column(OP)) == UPSERT
    # An upsert of what is there changes nothing, and neither does a delete of what is not.
    is_kept = (is_upsert & found.differ(columns)) | (~is_upsert & found.places.is_not_null())
    own = pl.int_range(changes.num_rows, eager=True)
    now = pl.select(pl.when(is_upsert).then(own)).to_series().filter(is_kept)
    sides = (before, found.places.filter(is_kept)), (changes, now)
    structs = [_structs(rows.select(columns), pa.array(places.to_arrow(), pa.int64())) for rows, places in sides]
    return pa.table({OLD: structs[0], NEW: structs[1]})


def values_in(pairs: pa.Table, column: str) -> Any:
    """All values that a column has on either side."""
    import pyarrow as pa

    sides = [field_of(rows, column) for rows in map(pairs.column, (OLD, NEW))]
    return pa.chunked_array([chunk for side in sides for chunk in side.chunks])


def distinct_rows(pairs: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """What the rows of both sides have in these columns, each row of them once, under the names that they map from."""
    import pyarrow as pa

    sides = [rows_there(pairs.column(side)).select([*columns.values()]) for side in (OLD, NEW)]
    whole = pa.concat_tables([sides[0], sides[1].cast(sides[0].schema)]).rename_columns([*columns])
    return whole.group_by([*columns]).aggregate([])


def rows_of_side(
    pairs: pa.Table, side: str, key: str, wanted: Mapping[str, Any], columns: Sequence[str]
) -> pa.Table | None:
    """One side's rows that have one of the wanted values in each of these columns; None where others may have them.

    Others may not where each wanted value of the key, which is unique, is the key of some pair.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if key not in wanted or not all(_is_plain(values.type) for values in wanted.values()):
        return None
    sides = {each: rows_there(pairs.column(each)) for each in (OLD, NEW)}
    known = (sides[each].column(key) for each in (OLD, NEW))
    keys = pa.chunked_array([chunk for column in known for chunk in column.chunks])
    if not pc.all(pc.is_in(_like(wanted[key], keys.type), keys), min_count=0).as_py():
        return None
    rows = sides[side]
    for name, values in wanted.items():
        rows = rows.filter(pc.is_in(rows.column(name), _like(values, rows.schema.field(name).type)))
    return rows.select(list(columns))


def rows_there(structs: Any) -> pa.Table:
    """Those of a column of structs that are there."""
    import pyarrow as pa

    return pa.Table.from_struct_array(structs.filter(structs.is_valid()))


def _is_plain(kind: Any) -> bool:
    """Of which equal values are alike: not 0 and -0."""
    import pyarrow as pa

    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _like(values: Any, kind: Any) -> Any:
    """As one array of the type, which a set of values has to be."""
    import pyarrow as pa

    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return whole if whole.type == kind else whole.cast(kind)


def spark_schema(types: Mapping[str, str]) -> StructType:
    """The schema of the pairs."""
    from pyspark.sql.types import StructField, StructType

    row = struct_type(types)
    return StructType([StructField(OLD, row), StructField(NEW, row)])


def struct_type(types: Mapping[str, str]) -> StructType:
    """The schema of rows, by Spark's names of their types."""
    from pyspark.sql.types import DataType, StructField, StructType

    return StructType([StructField(name, DataType.fromDDL(kind)) for name, kind in types.items()])


def _structs(rows: pa.Table, places: Any) -> Any:
    """The rows at these places as structs; a null place is a null struct."""
    return rows.to_struct_array().combine_chunks().take(places)
