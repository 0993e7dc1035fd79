"""What a query's stored rows have to become: its rows computed anew, compared with those that are stored.

In: both, of the same keys (or all). Out: the rows that differ, as sinks take them: columns, OP, LSN, AT; SHOWN where
some are hidden. Keeps true: rows that print alike are no change; two of one key are an error, never one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cdc.errors import OperatorError
from jobs.refresh.alike import alike, among_rows, has_doubles, mask, met
from jobs.upkeep.tables import NEW, OLD
from sinks.delta.literals import quoted
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT
from sinks.spec import ViewSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SHOWN: Final = "__shown"
"""Whether a row differs in what readers are shown."""


def few_changes(spec: ViewSpec, stored: pa.Table, new: pa.Table, lsn: int) -> pa.Table:
    """Of rows that are few."""
    import pyarrow as pa

    require_unique_few(spec, new)
    found = met(new, stored, spec.key, spec.stored)
    differs = found.differ(spec.stored)
    deletes = among_rows(stored, new.select(list(spec.key)), is_in=False)
    columns = list(spec.stored)
    # What is hidden may be NULL in a stored row, though no row that is computed has it so.
    schema = pa.schema([field.with_nullable(True) for field in new.select(columns).schema])
    upserts = new.select(columns).filter(mask(differs)).cast(schema)
    rows = pa.concat_tables([upserts, deletes.select(columns).cast(schema)])
    count = rows.num_rows
    control: dict[str, Any] = {
        OP: pa.array([UPSERT] * upserts.num_rows + [DELETE] * deletes.num_rows, pa.string()),
        LSN: pa.array([lsn] * count, pa.int64()),
        AT: pa.array([place(spec, lsn)] * count, pa.string()),
    }
    if spec.hidden:
        shown = found.differ(spec.columns).filter(differs)
        control[SHOWN] = pa.array([*shown, *(True for _ in range(deletes.num_rows))], pa.bool_())
    for name, values in control.items():
        rows = rows.append_column(name, values)
    return rows


def require_unique_few(spec: ViewSpec, rows: pa.Table) -> None:
    """A key, of rows in this process."""
    if has_doubles(rows, spec.key):
        raise not_unique(spec)


def many_changes(spec: ViewSpec, stored: DataFrame, new: DataFrame, lsn: int) -> DataFrame:
    """Of any number of rows, by Spark."""
    from pyspark.sql import functions as F  # noqa: N812

    row = F.struct(*map(quoted, spec.stored))
    ours, theirs = stored.select(row.alias(OLD)), new.select(row.alias(NEW))
    types = {field.name: field.dataType.simpleString() for field in new.schema.fields}
    same = F.lit(True)
    for name in spec.key:
        same = same & F.col(OLD).getField(name).eqNullSafe(F.col(NEW).getField(name))
    differ = ours.join(theirs, same, "full_outer").where(~alike(OLD, NEW, {name: types[name] for name in spec.stored}))
    op = F.when(F.col(NEW).isNull(), DELETE).otherwise(UPSERT)
    shown = F.coalesce(NEW, OLD)
    values = [shown.getField(name).alias(name) for name in spec.stored]
    control = [op.alias(OP), F.lit(lsn).cast("bigint").alias(LSN), F.lit(place(spec, lsn)).alias(AT)]
    if spec.hidden:
        control.append((~alike(OLD, NEW, {name: types[name] for name in spec.columns})).alias(SHOWN))
    return differ.select(*values, *control)


def upserts(spec: ViewSpec, rows: DataFrame, lsn: int) -> DataFrame:
    """All rows, as a sink takes its whole content."""
    from pyspark.sql import functions as F  # noqa: N812

    control = (F.lit(UPSERT).alias(OP), F.lit(lsn).cast("bigint").alias(LSN), F.lit(place(spec, lsn)).alias(AT))
    return rows.select(*map(quoted, spec.stored), *control)


def require_unique(spec: ViewSpec, rows: DataFrame) -> None:
    """A key that was declared and not proved."""
    if rows.groupBy(*map(quoted, spec.key)).count().where("count > 1").limit(1).count():
        raise not_unique(spec)


def not_unique(spec: ViewSpec) -> OperatorError:
    """The error of rows that share a key."""
    key = ", ".join(spec.key)
    return OperatorError(
        f"view {spec.name}: several rows have the same key ({key})",
        f"{spec.file}: add a column to `-- key:`, or make the query unique by GROUP BY; to see them, group the query's "
        f"rows by {key} in Postgres, and count",
        code="VIEW_KEY_NOT_UNIQUE",
    )


def place(spec: ViewSpec, lsn: int) -> str:
    """Where a refused row of a query comes from: no record of a topic, but the view at a position."""
    return f"{spec.name}@0:{lsn}"
