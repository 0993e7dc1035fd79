"""A query's SQL of one refresh, bound to the tables of its batch: all rows, affected keys, rows of these keys.

In: a view's plan, its relations' frames. Out: frames with the view's columns. Keeps true: each text is bound to its
tables as soon as it is parsed, so a name may be given anew while frames of it are still computed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from jobs.plan.nodes import Attribute
from jobs.plan.view import ViewPlan
from jobs.refresh.relations import ReadRelations, Untold
from jobs.upkeep.narrow import Key
from jobs.upkeep.refresh import Refresh, narrowed_sql, plan_refresh
from jobs.upkeep.tables import KEYS, State, Tables
from sinks.delta.held import Held
from sinks.delta.literals import literal
from sinks.spec import ViewSpec

if TYPE_CHECKING:
    import pyarrow as pa

# Names belong to the whole session.
_naming: Final = threading.Lock()


class Evaluation:
    """One query over one state of its relations."""

    def __init__(self, spark: SparkSession, spec: ViewSpec, relations: ReadRelations, now: Mapping[str, Held]) -> None:
        self._spark = spark
        self._spec = spec
        self._plan: ViewPlan = spec.plan
        self._relations = relations
        self._tables = Tables(now, prefix=f"{spec.name}__")
        self._now = now
        for name, held in now.items():
            self._call(name, State.NOW, relations.rows(name, held))

    def all_rows(self) -> DataFrame:
        """The whole answer."""
        return self._shown(self._spark.sql(plan_refresh(self._plan, self._tables, self._now).full))

    def planned(self, changed: Mapping[str, DataFrame], known: Mapping[str, Held]) -> Refresh:
        """What is run, given the images of the relations that changed, and the former states."""
        found = plan_refresh(self._plan, self._tables, changed)
        for name, images in changed.items():
            self._call(name, State.CHANGED, images)
        for name in found.before:
            if not self._now[name].continues(known[name]):
                raise Untold
            self._call(name, State.BEFORE, self._relations.rows(name, known[name]))
        return found

    def affected(self, refresh: Refresh) -> DataFrame:
        """The affected values of `refresh.by`, by number."""
        return self._spark.sql(refresh.affected)

    def rows_of(self, refresh: Refresh, keys: DataFrame, few: pa.Table | None = None) -> DataFrame:
        """The rows that have these keys now; where they are few, scans are bounded by the least and the greatest."""
        sql = narrowed_sql(self._plan, self._tables, refresh.by, _bounds(keys, few) if few is not None else {})
        with _naming:
            keys.createOrReplaceTempView(KEYS)
            return self._shown(self._spark.sql(sql))

    def column_of(self, attribute: Attribute) -> str:
        """What the view calls it."""
        return self._spec.columns[self._plan.outputs.index(attribute)]

    def _call(self, relation: str, state: State, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(self._tables.name(relation, state))

    def _shown(self, rows: DataFrame) -> DataFrame:
        return rows.toDF(*self._spec.columns)


def _bounds(keys: DataFrame, few: pa.Table) -> dict[str, Key]:
    """Delta leaves out files by literals alone."""
    kinds = {field.name: field.dataType.simpleString() for field in keys.schema.fields}
    found = {}
    for name in few.column_names:
        ends = _ends(few.column(name), kinds[name])
        if ends is not None:
            low, high = (literal(value, kinds[name]) for value in ends)
            found[name] = Key(name, low, high)
    return found


def _ends(values: Any, kind: str) -> tuple[Any, Any] | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_ordered(values.type):
        return None
    ends = pc.min_max(values)
    low, high = ends["min"], ends["max"]
    if not low.is_valid:
        return None
    if pa.types.is_date(values.type):
        try:
            return low.as_py().isoformat(), high.as_py().isoformat()
        except (ValueError, OverflowError):
            return None
    return low.as_py(), high.as_py()


def _is_ordered(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string, pa.types.is_date)
    return any(test(kind) for test in tests)
