"""Delta tables for the sinks' contract suite, with the ledger beside them, as apply keeps it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import sinks.delta.marked
from cdc.settings import Delta
from jobs.batch import Target
from jobs.ledger import Ledger
from jobs.recording import located, recorded
from sinks.delta import DeltaSink
from sinks.protocol import Position, Sink, Written

if TYPE_CHECKING:
    from tests.support.sinks import Store, View


class LedgeredSink:
    """A Delta sink whose position is what apply takes it to be: its own commit's, or the ledger's."""

    name = "delta"

    def __init__(self, sink: DeltaSink, root: str) -> None:
        self._sink = sink
        self._target = Target(sink.folder, "delta", "t")
        # A ledger of its own for each view: the suite moves them one by one.
        self._ledger = Ledger(f"{root}/{sink.folder}-ledger")

    def position(self) -> Position | None:
        own: dict[Target, Sink] = {self._target: self._sink}
        return located(own, {self._target: self._sink.position()}, self._ledger.read())[self._target]

    def write(self, changes: DataFrame, position: Position) -> Written:
        return self._recorded(self._sink.write(changes, position), position)

    def replace(self, rows: DataFrame, position: Position) -> Written:
        return self._recorded(self._sink.replace(rows, position), position)

    def advance(self, position: Position) -> None:
        self._sink.advance(position)
        self._recorded(Written(), position)

    def mend(self, changes: DataFrame, position: Position) -> Written:
        return self._recorded(self._sink.mend(changes, position), position)

    def types(self) -> Mapping[str, str]:
        return self._sink.types()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return self._sink.rows()

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        return self._sink.rows_of(keys)

    def beside(self) -> Sink:
        return self._sink.beside()

    def adopt(self, loaded: Sink, position: Position) -> None:
        self._sink.adopt(loaded, position)
        self._recorded(Written(), position)

    def supersede(self, former: Sink | None, loaded: Sink, position: Position) -> None:
        if isinstance(former, LedgeredSink):
            # One process writes one ledger.
            self._ledger, former = former._ledger, former._sink
        self._sink.supersede(former, loaded, position)
        self._recorded(Written(), position)

    def clear(self) -> None:
        self._sink.clear()

    def _recorded(self, written: Written, position: Position) -> Written:
        own = self._sink.position()
        if own is not None and own.lsn <= position.lsn:
            self._ledger.write(recorded({self._target: self._sink}, {self._target: position}))
        return written


def delta_store(request: pytest.FixtureRequest, spark: SparkSession, pipeline: str) -> Store:
    """Tables in a folder of the test's own, whose files are written anew."""
    return _store(request, spark, pipeline, marks=False)


def marked_store(request: pytest.FixtureRequest, spark: SparkSession, pipeline: str) -> Store:
    """Such tables in which rows are marked as deleted, however small they are."""
    request.getfixturevalue("monkeypatch").setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0)
    return _store(request, spark, pipeline, marks=True)


def _store(request: pytest.FixtureRequest, spark: SparkSession, pipeline: str, *, marks: bool) -> Store:
    from tests.support.sinks import Store, settings_for

    root = request.getfixturevalue("tmp_path")
    settings = settings_for(pipeline, delta=Delta(path=str(root), deletion_vectors=marks))

    class DeltaStore(Store):
        """Wraps its sinks."""

        def sink(self, view: View, **_options: str) -> Sink:
            return LedgeredSink(DeltaSink(settings.delta, pipeline, view.spec), settings.delta_root)

    return DeltaStore("delta", settings, spark, lambda view: shutil.rmtree(Path(settings.delta_root) / view))
