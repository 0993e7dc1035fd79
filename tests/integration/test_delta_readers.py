"""Readers of a derived table, by three engines, all the while that it is written, tidied and rebuilt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

import sinks.delta.upkeep
from cdc.settings import Delta
from sinks.delta import DeltaSink
from sinks.delta.layout import Limits
from sinks.delta.upkeep import Upkeep
from sinks.protocol import UPSERT
from tests.support.sinks import View, at

VIEW = View({"id": "bigint", "mark": "bigint"}, name="marked")
ROWS = 200
LOOKS = 4
Answer = tuple[int, int, int]


def by_deltalake(path: str) -> Answer:
    sql = "SELECT count(*) AS n, min(mark) AS low, max(mark) AS high FROM t"
    found = QueryBuilder().register("t", DeltaTable(path)).execute(sql).read_all()
    return tuple(found.column(name).to_pylist()[0] for name in ("n", "low", "high"))


def by_polars(path: str) -> Answer:
    marks = polars.col("mark")
    found = polars.scan_delta(path).select(polars.len(), marks.min().alias("low"), marks.max().alias("high")).collect()
    return found.row(0)


class BySpark:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark.newSession()

    def __call__(self, path: str) -> Answer:
        frame = self._spark.read.format("delta").load(path)
        return tuple(frame.selectExpr("count(*)", "min(mark)", "max(mark)").collect()[0])


class Reader(threading.Thread):
    """Looks without a pause; each answer must be of one state of the table."""

    def __init__(self, look: Callable[[str], Answer], path: str) -> None:
        super().__init__(daemon=True)
        self._look, self._path = look, path
        self.answers: list[Answer] = []
        self.errors: list[Exception] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            try:
                self.answers.append(self._look(self._path))
            except Exception as error:  # noqa: BLE001 - whatever a reader sees
                self.errors.append(error)


@pytest.mark.parametrize("limits", [Limits(small_max=0), Limits(sort_bytes_min=0, overlap_max=0.0, growth_min=0.0)])
def test_no_reader_fails_or_sees_half_a_state(
    spark: SparkSession, tmp_path: Path, pipeline_name: str, monkeypatch: pytest.MonkeyPatch, limits: Limits
):
    monkeypatch.setattr(sinks.delta.upkeep, "DUE_COMMITS", 2)
    sink = DeltaSink(Delta(path=str(tmp_path)), pipeline_name, VIEW.spec)

    def marked(mark: int) -> Any:
        return VIEW.frame(spark, [(UPSERT, mark, (key, mark)) for key in range(ROWS)])

    sink.replace(marked(1), at(1))
    sink._upkeep = Upkeep(sink.path, {}, ("id",), limits)
    readers = [Reader(look, sink.path) for look in (by_deltalake, by_polars, BySpark(spark))]
    for reader in readers:
        reader.start()
    tidied, mark = 0, 1
    try:
        while mark < 12 or any(len(reader.answers) < LOOKS and not reader.errors for reader in readers):
            mark += 1
            if mark % 5 == 0:
                sink.replace(marked(mark), at(mark))
            else:
                sink.write(marked(mark), at(mark))
            sink.held()
            tidied += sink.keep_up()
    finally:
        for reader in readers:
            reader.done.set()
        for reader in readers:
            reader.join(60)
    assert tidied
    for reader in readers:
        assert reader.errors == []
        assert all(count == ROWS and low == high for count, low, high in reader.answers)
        marks = [low for _, low, _ in reader.answers]
        assert marks == sorted(marks)
