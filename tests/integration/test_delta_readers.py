"""Readers of a derived table, by three engines, all the while that it is written, tidied, rebuilt and declared anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import sinks.delta.marked
import sinks.delta.upkeep
from cdc.settings import Delta
from sinks.delta import DeltaSink
from sinks.delta.layout import Limits
from sinks.delta.upkeep import Upkeep
from sinks.delta.vectors import dead_rows
from sinks.protocol import UPSERT
from tests.support.sinks import View, at

FORMER = View({"id": "bigint", "mark": "bigint"}, name="marked")
OTHERWISE = View({"mark": "int", "note": "string", "id": "bigint"}, name="marked", fingerprint="second")
"""A column more, another order, another type."""
ROWS = 200
TURNS = 16
LOOKS = 4
TURNS_HELD = 3
Answer = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def answer(columns: Mapping[str, list[Any]]) -> Answer:
    """Columns and rows, in an order of their own."""
    names = tuple(sorted(columns))
    return names, tuple(sorted(zip(*(columns[name] for name in names), strict=True)))


@dataclass(frozen=True)
class Engine:
    """Opens the newest version, and reads what was opened."""

    open: Callable[[str], Any]
    read: Callable[[Any], Answer]


def by_deltalake(table: DeltaTable) -> Answer:
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return answer(pa.table(found).to_pydict())


def by_polars(frame: polars.LazyFrame) -> Answer:
    return answer(frame.collect().to_dict(as_series=False))


def by_spark(frame: Any) -> Answer:
    return answer(frame.toArrow().to_pydict())


class RedefineError(Exception):
    """Spark takes the columns when a DataFrame is made, and the files when it is run: docs/READING.md."""


def by_spark_at_once(frame: Any) -> Answer:
    try:
        return by_spark(frame)
    except AnalysisException as error:
        if error.getCondition() == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS":
            raise RedefineError from None
        raise


def engines(spark: SparkSession) -> dict[str, Engine]:
    own = spark.newSession().read.format("delta")

    def as_of(path: str) -> Any:
        return own.option("versionAsOf", DeltaTable(path).version()).load(path)

    return {
        "deltalake": Engine(DeltaTable, by_deltalake),
        "polars": Engine(polars.scan_delta, by_polars),
        "polars as of": Engine(lambda path: polars.scan_delta(path, version=DeltaTable(path).version()), by_polars),
        "spark": Engine(own.load, by_spark_at_once),
        "spark as of": Engine(as_of, by_spark),
    }


class Reader(threading.Thread):
    """Opens without a pause, and reads what it opened once, or until the table has gone on by so many turns."""

    def __init__(self, name: str, engine: Engine, table: Written, turns_held: int = 0) -> None:
        super().__init__(name=name, daemon=True)
        self._engine, self._table, self._turns_held = engine, table, turns_held
        self.answers: list[list[Answer]] = []
        self.errors: list[Exception] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            try:
                self.answers.append(list(self._look()))
            except RedefineError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever a reader sees
                self.errors.append(error)

    def _look(self) -> Iterator[Answer]:
        until = self._table.mark + self._turns_held
        opened = self._engine.open(self._table.sink.path)
        yield self._engine.read(opened)
        while self._turns_held and not self.done.is_set():
            last = self._table.mark >= until
            yield self._engine.read(opened)
            if last:
                return


@dataclass
class Written:
    """A table that changes turn by turn, and what it has to show after each."""

    spark: SparkSession
    settings: Delta
    pipeline: str
    limits: Limits
    mark: int = 0
    view: View = FORMER
    rows: dict[int, int] = field(default_factory=dict)
    states: dict[int, Answer] = field(default_factory=dict)
    tidied: int = 0
    marked: int = 0

    def __post_init__(self) -> None:
        self.sink = self._sink()
        self.sink.replace(self._next(range(ROWS)), at(1))

    def turn(self) -> None:
        """The next change, of five kinds by turns."""
        match (self.mark + 1) % 5:
            case 0:
                self.sink.replace(self._next(range(ROWS)), at(self.mark))
            case 2:
                beside = self.sink.beside()
                beside.replace(self._next(range(ROWS)), at(self.mark))
                self.sink.adopt(beside, at(self.mark))
                self.sink.clear()
            case 4:
                self._declare_otherwise()
            case _:
                self.sink.write(self._next(range(self.mark % 7, ROWS, 7)), at(self.mark))
        self.marked += bool(dead_rows(DeltaTable(self.sink.path)))
        self.sink.held()
        self.tidied += self.sink.keep_up()

    def _declare_otherwise(self) -> None:
        former, self.view = self.sink, OTHERWISE if self.view is FORMER else FORMER
        self.view = replace(self.view, fingerprint=f"declared at {self.mark}")
        self.sink = self._sink()
        beside = self.sink.beside()
        beside.replace(self._next(range(ROWS)), at(self.mark))
        self.sink.supersede(former, beside, at(self.mark))
        self.sink.clear()

    def _sink(self) -> DeltaSink:
        sink = DeltaSink(self.settings, self.pipeline, self.view.spec)
        assert sink.position() is None
        sink._upkeep = Upkeep(sink.path, {}, ("id",), self.limits)
        return sink

    def _next(self, keys: range) -> Any:
        """These rows with the next mark."""
        self.mark += 1
        self.rows |= dict.fromkeys(keys, self.mark)
        self.states[self.mark] = answer(
            {name: [self._row(key)[name] for key in sorted(self.rows)] for name in self.view.columns}
        )
        rows = [self._row(key) for key in keys]
        return self.view.frame(
            self.spark, [(UPSERT, self.mark, tuple(row[name] for name in self.view.columns)) for row in rows]
        )

    def _row(self, key: int) -> dict[str, Any]:
        return {"id": key, "mark": self.rows[key], "note": f"n{self.rows[key]}"}


def newest_mark(found: Answer) -> int:
    names, rows = found
    return max(row[names.index("mark")] for row in rows)


@pytest.mark.parametrize(
    ("limits", "marks"),
    [
        (Limits(small_max=0), False),
        (Limits(sort_bytes_min=0, overlap_max=0.0, growth_min=0.0), False),
        (Limits(small_max=0), True),
    ],
    ids=["put together", "sorted", "marked"],
)
def test_no_reader_fails_or_sees_half_a_state(
    spark: SparkSession,
    tmp_path: Path,
    pipeline_name: str,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    marks: bool,
):
    monkeypatch.setattr(sinks.delta.upkeep, "DUE_COMMITS", 2)
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0)
    table = Written(spark, Delta(path=str(tmp_path), deletion_vectors=marks), pipeline_name, limits)
    made = engines(spark)
    readers = [Reader(name, made[name], table) for name in ("deltalake", "polars", "spark")]
    readers += [
        Reader(f"{name}, held", made[name], table, TURNS_HELD) for name in ("deltalake", "polars as of", "spark as of")
    ]
    for reader in readers:
        reader.start()
    try:
        while table.mark < TURNS or any(len(reader.answers) < LOOKS and not reader.errors for reader in readers):
            table.turn()
    finally:
        for reader in readers:
            reader.done.set()
        for reader in readers:
            reader.join(60)
    assert table.tidied
    assert bool(table.marked) == marks
    for reader in readers:
        assert reader.errors == [], reader.name
        for looks in reader.answers:
            assert len(set(looks)) == 1, f"{reader.name}: what was opened is read as it was"
        seen = [newest_mark(looks[0]) for looks in reader.answers]
        assert all(looks[0] == table.states[mark] for mark, looks in zip(seen, reader.answers, strict=True)), (
            reader.name
        )
        assert seen == sorted(seen), f"{reader.name} goes back"
