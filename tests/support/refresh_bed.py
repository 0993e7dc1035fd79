"""Mirrors with random rows and views over them as Delta tables, refreshed as apply does it, without its processes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from cdc.settings import Delta
from jobs.batch import Mode, Target, Task
from jobs.declare import declare_views
from jobs.declare.row_wise import mirror_spec
from jobs.declare.source import Source
from jobs.pipeline import Pipeline
from jobs.refresh.evaluation import Evaluation
from jobs.refresh.refresher import Refresher
from jobs.refresh.relations import Moved
from jobs.tables import ColumnInfo, TableInfo
from sinks.delta import DeltaSink
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT, Position


def _column(name: str, type_: str, oid: int, mod: int = -1) -> ColumnInfo:
    return ColumnInfo(name, type_, oid, oid, mod, name == "id", name != "id")


def _table(name: str, *columns: ColumnInfo) -> TableInfo:
    return TableInfo(1, "public", name, 1, "d", ("id",), columns, f"p.public.{name}", 1)


MONEY = ((10 << 16) | 2) + 4
ORDERS = _table(
    "orders",
    _column("id", "bigint", 20),
    _column("customer", "bigint", 20),
    _column("status", "text", 25),
    _column("amount", "numeric(10,2)", 1700, MONEY),
)
CUSTOMERS = _table("customers", _column("id", "bigint", 20), _column("city", "text", 25))
ARROW: dict[str, dict[str, pa.DataType]] = {
    "public.orders": {
        "id": pa.int64(),
        "customer": pa.int64(),
        "status": pa.string(),
        "amount": pa.decimal128(10, 2),
    },
    "public.customers": {"id": pa.int64(), "city": pa.string()},
}
Row = dict[str, Any]


@dataclass
class Bed:
    """Mirrors with random rows, and their views, refreshed as apply does it."""

    spark: SparkSession
    root: Path
    views: Mapping[str, str]
    """In an order in which each reads only those before it."""
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def __post_init__(self) -> None:
        tables = {("public", each.table): each for each in (ORDERS, CUSTOMERS)}
        texts = {name: Source(f"{name}.sql", text) for name, text in self.views.items()}
        specs = [*map(mirror_spec, tables.values()), *declare_views(texts, tables, queries=True)]
        self.specs = {spec.name: spec for spec in specs}
        self.order = [*self.views]
        self.rows: dict[str, dict[int, Row]] = {name: {} for name in ARROW}
        self.lsn = 0
        self.start()
        for name in ARROW:
            self.rows[name] = {each: self.row(name, each) for each in range(40)}
            frame = self.frame(name, [(UPSERT, row) for row in self.rows[name].values()])
            self.sinks[name].replace(frame, self.position())
        self.load()

    def load(self) -> None:
        """All views anew, whatever they hold."""
        for name in self.order:
            self.run(name, Mode.REPLACE)
        self.refresher.end_batch()

    def start(self) -> None:
        """As after a restart."""
        delta = Delta(path=str(self.root))
        self.sinks = {name: DeltaSink(delta, "p", spec) for name, spec in self.specs.items()}
        targets = {self.target(name): sink for name, sink in self.sinks.items()}
        self.refresher = Refresher(self.spark, Pipeline({}, self.specs, targets))
        self.refresher.locate({target: sink.position() for target, sink in targets.items()}, None)

    def target(self, name: str) -> Target:
        spec = self.specs[name]
        return Target(name, "delta", f"p.{name}", self.level(name), reads=spec.relations)

    def level(self, name: str) -> int:
        return 1 + max(map(self.level, self.specs[name].relations)) if name in self.views else 0

    def position(self) -> Position:
        return Position(self.lsn, 1, {})

    def row(self, name: str, key: int) -> Row:
        if name == "public.customers":
            return {"id": key, "city": self.rng.choice(["Rome", "Oslo", None])}
        amount = self.rng.choice([None, Decimal("0.01"), Decimal("-5.00"), Decimal("12345678.90"), Decimal("7.50")])
        status = self.rng.choice(["new", "paid", "void", None])
        return {"id": key, "customer": self.rng.choice([None, 1, 2, 3, 50]), "status": status, "amount": amount}

    def frame(self, name: str, rows: list[tuple[str, Row]]) -> Any:
        columns = pa.Table.from_pylist([row for _, row in rows], schema=pa.schema(ARROW[name]))
        controls: dict[str, list[Any]] = {
            OP: [op for op, _ in rows],
            LSN: [self.lsn] * len(rows),
            AT: ["t@0:1"] * len(rows),
        }
        for word, values in controls.items():
            columns = columns.append_column(word, pa.array(values))
        return self.spark.createDataFrame(columns)

    def change(self, *names: str, keys: int = 5, only: str | None = None) -> None:
        """Some rows of some tables, written as a batch does."""
        self.lsn += 1
        for name in names:
            rows, changes = self.rows[name], []
            for key in self.rng.sample(range(50), keys):
                if (only or self.rng.choice([UPSERT, UPSERT, DELETE])) == UPSERT:
                    rows[key] = self.row(name, key)
                    changes.append((UPSERT, rows[key]))
                elif key in rows:
                    changes.append((DELETE, rows.pop(key)))
            self.write(name, changes)

    def write(self, name: str, changes: list[tuple[str, Row]]) -> None:
        sink, frame = self.sinks[name], self.frame(name, changes)
        before = sink.held()
        sink.write(frame, self.position())
        self.refresher.relations.note(name, Moved(before, frame, len(changes)))

    def run(self, name: str, mode: Mode = Mode.WRITE) -> str:
        """How a view was refreshed."""
        self.refresher.run(Task(self.target(name), mode, (), (), 0, self.position(), 1))
        assert not self.refresher.failing.troubles
        return str(self.refresher.refreshed.get(name, ""))

    def refresh(self) -> dict[str, str]:
        """All of them, in order; each must be what it is computed anew."""
        how = {name: self.run(name) for name in self.order}
        for name in self.order:
            now = {each: self.refresher.relations.held(each) for each in self.specs[name].relations}
            answer = Evaluation(self.spark, self.specs[name], self.refresher.relations, now).all_rows().toArrow()
            kept = QueryBuilder().register("t", DeltaTable(self.sinks[name].path)).execute("SELECT * FROM t")
            assert _texts(pa.table(kept.read_all())) == _texts(answer), name
        self.refresher.end_batch()
        return how


def _texts(rows: pa.Table) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows.to_pylist())
