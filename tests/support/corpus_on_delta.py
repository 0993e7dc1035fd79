"""Views of a corpus refreshed as apply does it: over Delta tables of several files, by lookups and in one process.

In: a corpus whose tables are in Postgres. Out: how each view's table differs from Postgres's own answer. Capture and
Kafka have no part in it: what a batch changed is read from Postgres.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructType

from cdc.settings import Delta
from jobs.batch import TABLE, Mode, Target, Task
from jobs.declare.row_wise import mirror_spec
from jobs.pipeline import Pipeline
from jobs.refresh.refresher import Refresher
from jobs.refresh.relations import Moved
from jobs.tables import TableInfo
from jobs.view import view_changes
from sinks.delta import DeltaSink, commit
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT, Position
from sinks.spec import Kind, ViewSpec
from tests.support.answers import printed
from tests.support.corpus_kept import Keeper, Kept, Row, differing, kept_views

ROWS_PER_FILE = 7


class OnDelta:
    """All tables and views of one corpus."""

    def __init__(
        self,
        spark: SparkSession,
        connection: psycopg.Connection[Any],
        tables: Mapping[tuple[str, str], TableInfo],
        specs: Mapping[str, ViewSpec],
        folder: Path,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._source = Keeper(spark, connection, tables, {})
        self._lsn = 1
        self._mirrors = [mirror_spec(info) for info in tables.values()]
        self._specs = {spec.name: spec for spec in (*self._mirrors, *specs.values())}
        self._views = kept_views(connection, specs.values())
        delta = Delta(path=str(folder))
        self._sinks = {name: DeltaSink(delta, "corpus", spec) for name, spec in self._specs.items()}
        targets = {self._target(name): sink for name, sink in self._sinks.items()}
        self._refresher = Refresher(spark, Pipeline({}, self._specs, targets))
        self._refresher.locate({target: sink.position() for target, sink in targets.items()}, None)
        self._rows: dict[str, dict[Row, Row]] = {}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(commit, "ROWS_PER_FILE_MAX", ROWS_PER_FILE)
            self._load()

    def batch(self) -> list[str]:
        """Take in what the tables are now, refresh all views, and say how they differ from Postgres."""
        self._lsn += 1
        self._source.batch()
        for spec in self._mirrors:
            self._change(spec)
        for view in self._views.values():
            if view.spec.kind is Kind.QUERY:
                self._run(view.spec.name, Mode.WRITE)
        self._refresher.end_batch()
        return self.differences()

    def differences(self) -> list[str]:
        """How the views' tables differ from Postgres's answers."""
        found = (self._difference(view) for view in self._views.values())
        return sorted(text for text in found if text is not None)

    def ways(self) -> Counter[str]:
        """How often each way was taken last."""
        return Counter(text.partition('"how": "')[2].partition('"')[0] for text in self._refresher.refreshed.values())

    def _load(self) -> None:
        for spec in self._mirrors:
            schema, rows = self._source.table(spec.name)
            self._rows[spec.name] = dict(rows)
            frame = self._frame(schema, [(UPSERT, row) for row in rows.values()])
            for follower in self._followers(spec):
                self._sinks[follower.name].replace(view_changes(frame, follower), self._position)
        for view in self._views.values():
            if view.spec.kind is Kind.QUERY:
                self._run(view.spec.name, Mode.REPLACE)
        self._refresher.end_batch()

    def _change(self, spec: ViewSpec) -> None:
        """As a batch writes it: a deleted row has its key alone."""
        schema, now = self._source.table(spec.name)
        was, self._rows[spec.name] = self._rows[spec.name], dict(now)
        changes: list[tuple[str, Row]] = []
        for key in {**was, **now}:
            if key not in now:
                changes.append((DELETE, _key_alone(spec, was[key])))
            elif differing(was.get(key), now[key]):
                changes.append((UPSERT, now[key]))
        if not changes:
            return
        frame = self._frame(schema, changes)
        for follower in self._followers(spec):
            sink = self._sinks[follower.name]
            before, rows = sink.held(), view_changes(frame, follower)
            sink.write(rows, self._position)
            if follower.name in self._refresher.relations:
                self._refresher.relations.note(follower.name, Moved(before, rows, len(changes)))

    def _followers(self, mirror: ViewSpec) -> list[ViewSpec]:
        """The mirror, and the views of its rows one by one."""
        rows = (spec for spec in self._specs.values() if spec.kind is not Kind.QUERY)
        return [spec for spec in rows if (spec.schema, spec.table) == (mirror.schema, mirror.table)]

    def _run(self, name: str, mode: Mode) -> None:
        self._refresher.run(Task(self._target(name), mode, (), (), 0, self._position, 1))

    @property
    def _position(self) -> Position:
        return Position(self._lsn, self._lsn, {})

    def _target(self, name: str) -> Target:
        spec = self._specs[name]
        return Target(name, TABLE, f"p.{name}", int(spec.kind is Kind.QUERY), reads=spec.relations)

    def _frame(self, schema: StructType, rows: list[tuple[str, Row]]) -> DataFrame:
        types = to_arrow_schema(schema, timezone="UTC")
        columns = [pa.array([row[at] for _, row in rows], types.field(at).type) for at in range(len(types))]
        control: list[Any] = [pa.array([op for op, _ in rows]), pa.array([self._lsn] * len(rows), pa.int64())]
        control.append(pa.array([f"t@0:{self._lsn}"] * len(rows)))
        table = pa.table([*columns, *control], [*types.names, OP, LSN, AT])
        whole = StructType([*schema.fields]).add(OP, StringType()).add(LSN, LongType()).add(AT, StringType())
        return self._spark.createDataFrame(table, whole)

    def _difference(self, view: Kept) -> str | None:
        name = view.spec.name
        if name in self._refresher.failing.troubles:
            return f"{name}: {self._refresher.failing.troubles[name]}"
        wanted = Counter(tuple(row) for row in printed(self._connection, f"SELECT * FROM ({view.spec.postgres_sql}) v"))
        table = self._spark.read.format("delta").load(self._sinks[name].path).select(*map(_quoted, view.spec.columns))
        kept = Counter(
            map(view.rendered, zip(*(column.to_pylist() for column in table.toArrow().columns), strict=True))
        )
        if kept == wanted:
            return None
        how = self._refresher.refreshed.get(name, "")
        return f"{name}: too many {[*(kept - wanted)][:5]}, lacking {[*(wanted - kept)][:5]} {how}"


def _key_alone(spec: ViewSpec, row: Row) -> Row:
    return tuple(value if name in spec.key else None for name, value in zip(spec.columns, row, strict=True))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
