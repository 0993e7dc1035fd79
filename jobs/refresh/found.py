"""What differs in a query's rows, as sinks take it, and what readers are shown of it.

In: rows that were compared, or both sides to be. Out: Found. Keeps true: a key that was declared and not proved is
unique among the new rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from jobs.refresh.difference import SHOWN, many_changes, require_unique
from jobs.refresh.outcome import How
from jobs.refresh.relations import ReadRelations
from sinks.arrow_frames import frame_of
from sinks.delta.literals import quoted
from sinks.protocol import AT, LSN, OP
from sinks.spec import ViewSpec

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that differ, as sinks take them; `frame` is None where there are none, `shown` has what readers see.

    Or `whole`: all rows, to be put in the place of what there is.
    """

    frame: DataFrame | None
    count: int
    how: How
    why: str | None = None
    keys: int | None = None
    shown: DataFrame | None = None
    whole: DataFrame | None = None


class Finding:
    """Of one refresh of one query, which stands at `lsn` then."""

    def __init__(self, spark: SparkSession, spec: ViewSpec, relations: ReadRelations, lsn: int) -> None:
        self._spark = spark
        self._spec = spec
        self._relations = relations
        self._lsn = lsn
        self._proved = spec.plan.key_proof is not None

    def few(self, changes: pa.Table, like: StructType, how: How, keys: int | None, why: str | None = None) -> Found:
        """Of rows that were compared in this process."""
        if not changes.num_rows:
            return Found(None, 0, how, why, keys)
        control = [StructField(OP, StringType()), StructField(LSN, LongType()), StructField(AT, StringType())]
        if self._spec.hidden:
            control.append(StructField(SHOWN, BooleanType()))
        rows = [StructField(each.name, each.dataType) for each in like.fields]
        schema = StructType([*rows, *control])
        frame = frame_of(self._spark, changes, schema)
        return Found(frame, changes.num_rows, how, why, keys, self._shown_of_few(frame, changes, schema))

    def _shown_of_few(self, frame: DataFrame, changes: pa.Table, schema: StructType) -> DataFrame | None:
        if not self._spec.hidden:
            return frame
        shown = changes.filter(changes.column(SHOWN)).select([*self._spec.columns, OP, LSN, AT])
        fields = StructType([schema[name] for name in shown.column_names])
        return frame_of(self._spark, shown, fields) if shown.num_rows else None

    def _shown(self, changes: DataFrame | None) -> DataFrame | None:
        if changes is None or not self._spec.hidden:
            return changes
        shown = changes.where(SHOWN).select(*map(quoted, self._spec.columns), OP, LSN, AT)
        return None if shown.isEmpty() else shown

    def compared(self, stored: DataFrame, rows: DataFrame, how: How, keys: int | None, why: str | None = None) -> Found:
        """Of both sides, compared by Spark."""
        if not self._proved:
            rows = self._relations.kept(rows)
            require_unique(self._spec, rows)
        changes = self._relations.kept(many_changes(self._spec, stored, rows, self._lsn))
        count = changes.count()
        frame = changes if count else None
        return Found(frame, count, how, why, keys, self._shown(frame))
