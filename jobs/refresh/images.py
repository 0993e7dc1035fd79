"""Changed rows as pairs, before and after, put together in this process.

In: a relation's rows from before, and its changes, both few. Out: one Arrow row for each key that is not alike on both
sides: structs OLD and NEW, null where there was no row. Keeps true: a key is paired with itself alone, NULL with NULL.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from jobs.refresh.lookup import row_values
from jobs.upkeep.tables import NEW, OLD
from sinks.protocol import OP, UPSERT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


def paired(before: pa.Table, changes: pa.Table, columns: Sequence[str], key: Sequence[str]) -> pa.Table:
    """The pairs; `changes` have OP."""
    import pyarrow as pa

    old = _by_key(before, columns, key)
    new = _by_key(changes, columns, key)
    upserts = changes.column(OP).to_pylist()
    pairs = []
    for each, (at, row) in new.items():
        was, known = old.get(each, (None, None))
        now = at if upserts[at] == UPSERT else None
        if (was, now) != (None, None) and (now is None or row != known):
            pairs.append((was, now))
    sides = zip((before, changes), ((was for was, _ in pairs), (now for _, now in pairs)), strict=True)
    structs = [_structs(rows.select(columns), pa.array(list(places), pa.int64())) for rows, places in sides]
    return pa.table({OLD: structs[0], NEW: structs[1]})


def values_in(pairs: pa.Table, column: str) -> Any:
    """All values that a column has on either side."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = [pc.struct_field(rows, [rows.type.get_field_index(column)]) for rows in map(pairs.column, (OLD, NEW))]
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


def alike(ours: str, theirs: str, types: Mapping[str, str]) -> Column:
    """Whether two structs of a frame are both there and hold the same, as it prints."""
    from pyspark.sql import functions as F  # noqa: N812

    def value(side: str, name: str) -> Column:
        column = F.col(side).getField(name)
        # 0 and -0 are equal and print differently.
        return column.cast("string") if types[name] in ("float", "double") else column

    same = [value(ours, name).eqNullSafe(value(theirs, name)) for name in types]
    return reduce(lambda one, other: one & other, same, F.col(ours).isNotNull() & F.col(theirs).isNotNull())


def _by_key(
    rows: pa.Table, columns: Sequence[str], key: Sequence[str]
) -> dict[tuple[Hashable, ...], tuple[int, tuple[Any, ...]]]:
    pairs = zip(row_values(rows, key), row_values(rows, columns), strict=True)
    return {each: (at, row) for at, (each, row) in enumerate(pairs)}


def _structs(rows: pa.Table, places: Any) -> Any:
    """The rows at these places as structs; a null place is a null struct."""
    return rows.to_struct_array().combine_chunks().take(places)
