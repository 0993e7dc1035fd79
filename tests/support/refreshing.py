"""A view's rows kept by refreshes alone, on Spark, over tables that are given as Python rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.plan.types import INT4
from jobs.plan.view import ViewPlan
from jobs.plan.walk import relations
from jobs.refresh.fetched import FetchedScans
from jobs.upkeep.narrow import Key, Narrowing
from jobs.upkeep.near import Near
from jobs.upkeep.planning import Cost
from jobs.upkeep.refresh import Refresh, keyed_sql, plan_refresh
from jobs.upkeep.tables import KEYS, State
from jobs.upkeep.tables import Tables as Names
from tests.support.random_plans import TABLES, Row, Tables

Bag = Counter[Row]


class Refreshed:
    """One view over the tables of random_plans."""

    def __init__(self, spark: SparkSession, view: ViewPlan, tables: Tables) -> None:
        self._spark = spark.newSession()
        self._view = view
        self._names = Names(relations(view.root))
        self._tables = tables
        self.rows = self.answer(tables)
        self.affected = 0

    @property
    def relations(self) -> tuple[str, ...]:
        """What it reads."""
        return self._names.relations

    def answer(self, tables: Tables) -> Bag:
        """All of the view's rows, computed anew."""
        self._show(tables, State.NOW)
        return _bag(self._spark.sql(plan_refresh(self._view, self._names, self.relations).full))

    def refresh(self, after: Tables) -> Refresh | None:
        """Bring the rows up to date by what changed alone; None where nothing did."""
        before, self._tables = self._tables, after
        changed = [name for name in self.relations if before[name] != after[name]]
        if not changed:
            return None
        plan = plan_refresh(self._view, self._names, changed)
        self._show(after, State.NOW)
        self._show(before, State.BEFORE)
        for name in changed:
            self._show_changed(name, before[name], after[name])
        affected = self._spark.sql(plan.affected).localCheckpoint()
        keys = set(_bag(affected))
        self.affected += len(keys)
        if Cost.EVERY_KEY not in plan.costs.values():
            assert self._near(changed, before) == keys, "rows near changed ones, read by their values"
        if plan.narrowed is None:
            self.rows = _bag(self._spark.sql(plan.full)) if keys else self.rows
            return plan
        affected.createOrReplaceTempView(KEYS)
        by = [self._view.outputs.index(column) for column in sorted(plan.by, key=lambda column: column.id)]
        kept = Counter({row: n for row, n in self.rows.items() if tuple(row[at] for at in by) not in keys})
        narrowed = _bag(self._spark.sql(plan.narrowed))
        assert self._fetched(plan, affected) == narrowed, "rows fetched by their keys make other rows of the view"
        self.rows = kept + narrowed
        return plan

    def _fetched(self, plan: Refresh, affected: DataFrame) -> Bag:
        """The narrowed rows again, of scans that were read by the values of their keys."""
        keys = affected.toArrow()
        known = {column: Key(column.sql, values=keys.column(column.sql)) for column in plan.by}
        scans = FetchedScans(self._lookup, "by_key_")
        narrowed, _ = Narrowing(scans.scan).narrow(self._view.root, known)
        self._show_fetched(scans)
        sql = keyed_sql(self._view, plan.by, narrowed, lambda name: self._names.name(name, State.NOW))
        return _bag(self._spark.sql(sql))

    def _near(self, changed: Sequence[str], before: Tables) -> set[Row]:
        """The affected keys again, of joined scans that were read by the values of changed rows."""

        def values(relation: str, column: str) -> Any:
            at = [name for name, _ in TABLES[relation]].index(column)
            rows = [*before[relation].items(), *self._tables[relation].items()]
            differ = [row[at] for key, row in rows if before[relation].get(key) != self._tables[relation].get(key)]
            return pa.array(differ, _arrow(relation, column)) if relation in changed else None

        scans = FetchedScans(self._lookup, "near_")
        plan = plan_refresh(self._view, self._names, changed, Near(values, Narrowing(scans.scan)))
        self._show_fetched(scans)
        return set(_bag(self._spark.sql(plan.affected)))

    def _show_fetched(self, scans: FetchedScans) -> None:
        for name, (relation, rows) in scans.tables.items():
            frame = self._spark.createDataFrame(rows, _schema(relation, rows.column_names))
            frame.createOrReplaceTempView(name)

    def _lookup(self, relation: str, wanted: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
        names = [column for column, _ in TABLES[relation]]
        some = {names.index(column): set(values.to_pylist()) for column, values in wanted.items()}
        rows = [row for row in self._tables[relation].values() if all(row[at] in known for at, known in some.items())]
        return pa.table(
            {name: pa.array([row[names.index(name)] for row in rows], _arrow(relation, name)) for name in columns}
        )

    def _show(self, tables: Tables, state: State) -> None:
        for name in self.relations:
            frame = self._spark.createDataFrame(list(tables[name].values()), _schema(name))
            frame.createOrReplaceTempView(self._names.name(name, state))

    def _show_changed(self, name: str, before: dict[Row, Row], after: dict[Row, Row]) -> None:
        keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        rows = [(before.get(key), after.get(key)) for key in keys]
        struct = ", ".join(f"{column}: {type_.spark}" for column, type_ in TABLES[name])
        frame = self._spark.createDataFrame(rows, f"o struct<{struct}>, n struct<{struct}>")
        frame.createOrReplaceTempView(self._names.name(name, State.CHANGED))


def _schema(name: str, columns: Sequence[str] | None = None) -> str:
    types = dict(TABLES[name])
    return ", ".join(f"{column} {types[column].spark}" for column in columns or types)


def _arrow(relation: str, column: str) -> Any:
    return pa.int32() if dict(TABLES[relation])[column] is INT4 else pa.string()


def _bag(frame: DataFrame) -> Bag:
    return Counter(tuple(row) for row in frame.collect())
