"""Views of a corpus kept up to date by refreshes alone on Spark, beside the Postgres that holds the tables.

Each relation is what Postgres prints, read as Delta's types; each view's rows are compared as a bag of texts with what
Postgres answers to the view's own SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from jobs.plan.nodes import Attribute
from jobs.prove.render import Renderer, renderer
from jobs.tables import TableInfo
from jobs.upkeep import tallying
from jobs.upkeep.refresh import Refresh, plan_refresh
from jobs.upkeep.tables import KEYS, NEW, OLD, State, Tables
from sinks.spec import ViewSpec
from tests.support.answers import cell, printed

Row = tuple[Any, ...]
Bag = Counter[tuple[str | None, ...]]
FAST = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""The data are small; most of the time would go by in compiling and in handing rows between tasks."""


class Names(Tables):
    """Temporary views that all sessions see."""

    def name(self, relation: str, state: State) -> str:
        """The temporary view's name."""
        return f"global_temp.{super().name(relation, state)}"


@dataclass
class Relation:
    """A table's or a view's rows, by key."""

    schema: StructType
    key: tuple[int, ...]
    rows: dict[Row, Row]


class Keeper:
    """All relations of one corpus, and what its views' rows are."""

    def __init__(
        self,
        spark: SparkSession,
        connection: psycopg.Connection[Any],
        tables: Mapping[tuple[str, str], TableInfo],
        specs: Mapping[str, ViewSpec],
    ) -> None:
        self._spark = spark.newSession()
        for name, value in FAST.items():
            self._spark.conf.set(name, value)
        self._connection = connection
        self._tables = tables
        self._names = Names([*(_path(info) for info in tables.values()), *specs])
        self._relations: dict[str, Relation] = {}
        self._changed: set[str] = set()
        self.views: dict[str, Kept] = {}
        self.seen_rows = 0
        for info in tables.values():
            self._relations[_path(info)] = self._read(info)
            self._show(_path(info))
        for spec in specs.values():
            self._add(spec)

    def batch(self) -> set[str]:
        """Take in what the tables are now; the relations that differ from before."""
        self._changed = set()
        for info in self._tables.values():
            self._replace(_path(info), self._read(info))
        return self._changed

    def refresh(self, view: Kept) -> Refresh | None:
        """Bring one view up to date; None where nothing that it reads changed."""
        if view.spec.plan is None:
            self._replace(view.spec.name, _keyed(self._full(view), view.key))
            return None
        changed = self._changed & set(view.spec.relations)
        if not changed:
            return None
        plan = plan_refresh(view.spec.plan, self._names, changed)
        before = self._relations[view.spec.name]
        tallied = self._tallied(view, changed, before) if view.spec.plan.tally is not None else None
        rows = self._refreshed(view, plan, before) if tallied is None else tallied
        self._replace(view.spec.name, rows)
        return plan

    def difference(self, view: Kept) -> str | None:
        """How the kept rows differ from Postgres's answer; None if they don't."""
        query = f"SELECT * FROM ({view.spec.postgres_sql}) v"
        wanted: Bag = Counter(tuple(row) for row in printed(self._connection, query))
        rows = self._relations[view.spec.name].rows.values()
        kept: Bag = Counter(view.rendered(row) for row in rows)
        self.seen_rows += len(rows)
        if kept == wanted:
            return None
        return f"{view.spec.name}: too many {sorted(kept - wanted, key=str)}, lacking {sorted(wanted - kept, key=str)}"

    def differences(self, *, refreshed: bool = True) -> list[str]:
        """How the views differ from Postgres's answers, after a refresh of each."""
        found = []
        for view in self.views.values():
            if refreshed:
                self.refresh(view)
            found.append(self.difference(view))
        return sorted(text for text in found if text is not None)

    def table(self, name: str) -> tuple[StructType, Mapping[Row, Row]]:
        """A relation's rows by key."""
        relation = self._relations[name]
        return relation.schema, relation.rows

    def is_empty(self, name: str) -> bool:
        """Whether a view has no rows."""
        return not self._relations[name].rows

    def answer(self, view: Kept) -> None:
        """Take the view's rows anew, all of them."""
        self._relations[view.spec.name] = _keyed(self._full(view), view.key)

    def _full(self, view: Kept) -> DataFrame:
        if view.spec.plan is not None:
            return self._named(view, plan_refresh(view.spec.plan, self._names, view.spec.relations).full)
        table = self._names.name(f"{view.spec.schema}.{view.spec.table}", State.NOW)
        self._spark.table(table).createOrReplaceTempView("changes")
        return self._spark.sql(view.spec.spark_sql)

    def _named(self, view: Kept, query: str) -> DataFrame:
        return self._spark.sql(query).toDF(*view.spec.stored)

    def _add(self, spec: ViewSpec) -> None:
        view = Kept(spec, _rendering(self._connection, spec))
        self.views[spec.name] = view
        self.answer(view)
        self._show(spec.name)

    def _refreshed(self, view: Kept, plan: Refresh, before: Relation) -> Relation:
        affected = self._spark.sql(plan.affected)
        keys = _rows(affected)
        view.affected += len(keys)
        if not keys:
            return before
        if plan.narrowed is None:
            view.recomputed += 1
            return _keyed(self._full(view), view.key)
        self._frame(keys, affected.schema).createOrReplaceTempView(KEYS)
        narrowed = self._named(view, plan.narrowed)
        assert view.spec.plan is not None
        places = [view.spec.plan.outputs.index(column) for column in _by_number(plan.by)]
        gone = {tuple(map(_exactly, row)) for row in keys}
        kept = [row for row in before.rows.values() if tuple(_exactly(row[at]) for at in places) not in gone]
        return _keyed_rows(narrowed.schema, [*kept, *_rows(narrowed)], view.key)

    def _tallied(self, view: Kept, changed: set[str], before: Relation) -> Relation | None:
        """By the changed rows alone; None where a group is unsure, so that those are computed by their keys."""
        plan, name = view.spec.plan, view.spec.name
        assert plan is not None
        assert plan.tally is not None
        found = tallying.signed(plan.tally, self._names, changed)
        groups = [column.sql for column in plan.tally.aggregate.groups]
        parts = _rows(self._spark.sql(found.sql))
        places = [plan.stored.index(column) for column in plan.tally.aggregate.groups]
        view.affected += len(touched := {tuple(map(_exactly, row[: len(groups)])) for row in parts})
        if not touched:
            return before
        stored = tallying.stored_sql(plan, view.spec.stored, self._names.name(name, State.NOW))
        rows = f"({found.sql} UNION ALL {stored}) t"
        folded = self._spark.sql(tallying.folded_sql(plan.tally, rows, is_exact=found.is_exact))
        results = [row for row in folded.toArrow().to_pylist() if not groups or _group(row, groups) in touched]
        if any(row[tallying.UNSURE] for row in results):
            view.unsure += 1
            return None
        view.tallied += 1
        self._frame([tuple(row.values()) for row in results], folded.schema).createOrReplaceTempView("folded")
        anew = self._named(view, tallying.rows_sql(plan, "folded"))
        kept = [row for row in before.rows.values() if tuple(_exactly(row[at]) for at in places) not in touched]
        return _keyed_rows(anew.schema, [*kept, *_rows(anew)] if groups else _rows(anew), view.key)

    def _read(self, info: TableInfo) -> Relation:
        texts = printed(self._connection, f'SELECT * FROM "{info.schema}"."{info.table}"')
        names = [column.name for column in info.columns]
        columns = [pa.array([row[at] for row in texts], pa.string()) for at in range(len(names))]
        frame = self._spark.createDataFrame(pa.table(columns, names))
        return _keyed(
            frame.selectExpr(*(cell(column) for column in info.columns)), tuple(names.index(each) for each in info.key)
        )

    def _replace(self, name: str, rows: Relation) -> None:
        before = self._relations[name]
        keys = [key for key in {**before.rows, **rows.rows} if differing(before.rows.get(key), rows.rows.get(key))]
        self._relations[name] = rows
        if not keys:
            return
        self._changed.add(name)
        self._show(name)
        self._set(name, State.BEFORE, self._frame(before.rows.values(), before.schema))
        struct = StructType([StructField(word, rows.schema) for word in (OLD, NEW)])
        pairs = [tuple(_struct(each.get(key), rows.schema) for each in (before.rows, rows.rows)) for key in keys]
        self._set(name, State.CHANGED, self._frame(pairs, struct))

    def _show(self, name: str) -> None:
        relation = self._relations[name]
        self._set(name, State.NOW, self._frame(relation.rows.values(), relation.schema))

    def _set(self, name: str, state: State, frame: DataFrame) -> None:
        frame.createOrReplaceGlobalTempView(self._names.name(name, state).partition(".")[2])

    def _frame(self, rows: Iterable[Row], schema: StructType) -> DataFrame:
        """A frame that Spark holds as it is; the schema tells both kinds of timestamps apart."""
        found, types = list(rows), to_arrow_schema(schema, timezone="UTC")
        columns = [pa.array([row[at] for row in found], types.field(at).type) for at in range(len(types))]
        return self._spark.createDataFrame(pa.table(columns, schema=types), schema)


class Kept:
    """A view; `affected` counts the affected keys so far, `recomputed` how often it was computed as a whole.

    `tallied` counts how often its groups followed from changed rows alone, `unsure` how often not all did.
    """

    def __init__(self, spec: ViewSpec, renderers: tuple[Renderer, ...]) -> None:
        self.spec = spec
        self.key = tuple(spec.columns.index(column) for column in spec.key)
        self.affected = 0
        self.recomputed = 0
        self.tallied = 0
        self.unsure = 0
        self._renderers = renderers

    def rendered(self, row: Row) -> tuple[str | None, ...]:
        """A row as Postgres would print it; what is hidden it does not know."""
        return tuple(render(value) for render, value in zip(self._renderers, row, strict=False))


def kept_views(connection: psycopg.Connection[Any], specs: Iterable[ViewSpec]) -> dict[str, Kept]:
    """Views whose rows are compared with Postgres's."""
    return {spec.name: Kept(spec, _rendering(connection, spec)) for spec in specs}


def _path(info: TableInfo) -> str:
    return f"{info.schema}.{info.table}"


def _rendering(connection: psycopg.Connection[Any], spec: ViewSpec) -> tuple[Renderer, ...]:
    result = connection.execute(f"SELECT * FROM ({spec.postgres_sql}) v LIMIT 0".encode()).pgresult
    assert result is not None
    return tuple(renderer(result.ftype(at), result.fmod(at)) for at in range(result.nfields))


def _by_number(columns: Iterable[Attribute]) -> list[Attribute]:
    return sorted(columns, key=lambda column: column.id)


def _rows(frame: DataFrame) -> list[Row]:
    table = frame.toArrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _keyed(frame: DataFrame, key: tuple[int, ...]) -> Relation:
    return _keyed_rows(frame.schema, _rows(frame), key)


def _keyed_rows(schema: StructType, rows: list[Row], key: tuple[int, ...]) -> Relation:
    """Rows by key. That a proved key is unique is a part of what is tested."""
    by_key = {tuple(_exactly(row[at]) for at in key): row for row in rows}
    assert len(by_key) == len(rows), "two rows share a key"
    return Relation(schema, key, by_key)


def _group(row: Mapping[str, Any], groups: Iterable[str]) -> Row:
    return tuple(_exactly(row[name]) for name in groups)


def _exactly(value: Any) -> Any:
    """NaN is itself, and 0 is not -0."""
    return repr(value) if isinstance(value, float) else value


def differing(one: Row | None, other: Row | None) -> bool:
    """Whether they print differently."""
    if one is None or other is None:
        return one is not other
    return list(map(_exactly, one)) != list(map(_exactly, other))


def _struct(row: Row | None, schema: StructType) -> dict[str, Any] | None:
    return None if row is None else dict(zip(schema.names, row, strict=True))
