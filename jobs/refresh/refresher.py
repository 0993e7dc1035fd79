"""Queries of one pipeline, refreshed: what a batch's tasks of derived targets do.

In: tasks whose relations already stand at the batch's LSN. Out: rows in a query's Delta table, and then in its other
sinks. Keeps true: a position says which rows of each relation it was computed from, in the same commit as the rows; a
sink that is not where its query's table was before the batch is brought there by comparing, or loaded anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdc import metrics
from cdc.errors import OperatorError
from cdc.log import get
from cdc.lsn import format_lsn
from jobs.batch import TABLE, Mode, Target, Task
from jobs.failures import translated
from jobs.ledger import LedgerState
from jobs.pipeline import Pipeline, held_tables
from jobs.refresh.changes import QueryChanges
from jobs.refresh.difference import many_changes, require_unique, upserts
from jobs.refresh.evaluation import Evaluation
from jobs.refresh.failing import ALONE, FailingViews
from jobs.refresh.found import Found
from jobs.refresh.outcome import How, Outcome
from jobs.refresh.read import rows_at
from jobs.refresh.relations import Moved, ReadRelations
from jobs.refresh.stored import Stored
from jobs.refresh.ways import Way, noted, way
from jobs.twins import live_name
from sinks.delta import DeltaSink
from sinks.delta.held import Held
from sinks.protocol import Position, Sink, Written
from sinks.spec import ViewSpec

_log = get(__name__)


class Refresher:
    """Lives as long as a session of apply; `end_batch` frees what a batch held."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self._specs = dict(pipeline.specs)
        self._sinks = dict(pipeline.sinks)
        self._tables = held_tables(pipeline.sinks)
        self.relations = ReadRelations(spark, pipeline.specs, self._tables)
        self._positions: dict[Target, Position] = {}
        self.failing = FailingViews()
        self.refreshed: dict[str, str] = {}
        """How each query was refreshed last, for the ledger."""

    def locate(self, positions: Mapping[Target, Position | None], ledger: LedgerState | None) -> None:
        """Know from what each sink's rows were computed, and how."""
        self.refreshed = {name: row.refreshed for name, row in ledger.rows.items()} if ledger is not None else {}
        self._positions = {target: position for target, position in positions.items() if position is not None}

    def marked(self, target: Target, position: Position) -> Position:
        """The position of a derived target, with what its rows were computed from."""
        known = self._positions.get(target)
        return replace(position, offsets=known.offsets) if target.is_derived and known is not None else position

    def join(
        self, specs: Sequence[ViewSpec], sinks: Mapping[Target, Sink], positions: Mapping[Target, Position]
    ) -> bool:
        """Some views more go along with the batches: twins, whose sinks stand there. False if they do already."""
        if all(spec.name in self._specs for spec in specs):
            return False
        self._specs |= {spec.name: spec for spec in specs}
        self._sinks |= sinks
        self._tables |= {at.view: sink for at, sink in sinks.items() if isinstance(sink, DeltaSink)}
        self._positions |= positions
        self.will_read(specs)
        self.pipeline = replace(self.pipeline, specs=dict(self._specs), sinks=dict(self._sinks))
        return True

    def will_read(self, specs: Iterable[ViewSpec]) -> None:
        """These queries read tables, and columns, that perhaps no other does."""
        self.relations.include(specs, self._specs, self._tables)

    def leave(self, view: str) -> None:
        """It does so no longer."""
        self._specs.pop(view, None)
        self._tables.pop(view, None)
        for target in [target for target in self._sinks if target.view == view]:
            del self._sinks[target]
            self._positions.pop(target, None)
        self.failing.forget(view)
        self.pipeline = replace(self.pipeline, specs=dict(self._specs), sinks=dict(self._sinks))

    def swapped(self, target: Target, position: Position) -> None:
        """A sink shows its twin's rows, which were computed from what the position says."""
        self._positions[target] = position

    def end_batch(self) -> None:
        """What was held for this batch's queries is not needed any more."""
        self.relations.forget()

    def hold_back(self, targets: Iterable[Target]) -> None:
        """What these read stands behind."""
        for target in targets:
            if target.sink == TABLE:
                failing = self.failing.troubles
                self.failing.wait(target.view, next(name for name in target.reads if name in failing))

    def run(self, task: Task) -> Written | None:
        """Bring one derived target to the task's position; None where its query failed, and it stays."""
        target = task.target
        if target.sink != TABLE:
            with translated(f"view {target.view} into {target.sink}"):
                written, self._positions[target] = self._follow(task)
            return written
        now = {name: self.relations.held(name) for name in self._specs[target.view].relations}
        if self.failing.fails_again(target.view, now):
            return None
        try:
            with translated(f"view {target.view}"):
                written, self._positions[target] = self._table(task, now)
        except OperatorError as error:
            if error.code not in ALONE:
                raise
            self.failing.fail(target.view, error, now)
            return None
        self.failing.succeed(target.view)
        return written

    def _table(self, task: Task, now: Mapping[str, Held]) -> tuple[Written, Position]:
        spec, sink = self._specs[task.target.view], self._tables[task.target.view]
        began_s = time.monotonic()
        position = replace(task.position, offsets=noted(now))
        if task.mode is Mode.REPLACE:
            rows = Evaluation(self.spark, spec, self.relations, now).all_rows()
            if spec.plan.key_proof is None:
                require_unique(spec, rows)
            written = sink.replace(upserts(spec, rows, position.lsn), position)
            self._tell(spec, position, Outcome(How.LOADED, None, None, written.upserts, time.monotonic() - began_s))
            return written, position
        stored = Stored(self.spark, spec, sink, sink.held())
        offsets = self._positions[task.target].offsets
        follows = self._follows(task.target)
        changes = QueryChanges(self.spark, stored, self.relations, now, position.lsn, follows=follows)
        found = changes.since({name: Held.of(offsets.get(name)) for name in now})
        written = self._write(sink, found, position)
        if found.whole is None:
            self.relations.note(spec.name, Moved(stored.held, found.shown, found.count))
        if found.how is not How.UNCHANGED:
            rows_written = written.upserts + written.deletes
            seconds = time.monotonic() - began_s
            self._tell(spec, position, Outcome(found.how, found.why, found.keys, rows_written, seconds))
        return written, position

    def _follows(self, table: Target) -> bool:
        """Whether another sink, or another view, goes by what changed in the table."""
        return any(table.view in each.reads or each.view == table.view for each in self._sinks if each != table)

    def _write(self, sink: DeltaSink, found: Found, position: Position) -> Written:
        if found.whole is not None:
            return sink.rewrite(found.whole, position)
        if found.frame is not None:
            return sink.write(found.frame, position)
        sink.advance(position)
        return Written()

    def _follow(self, task: Task) -> tuple[Written, Position]:
        """Another sink of a query holds what the query's table does."""
        target = task.target
        [name] = target.reads  # a twin may follow the live table
        spec, sink, table = self._specs[target.view], self._sinks[target], self._tables[name]
        now = table.held()
        position = replace(task.position, offsets=noted({name: now}))
        known = Held.of(self._positions[target].offsets.get(name)) if target in self._positions else None
        moved = self.relations.moved(name)
        led = way(known, now, moved.before if moved is not None else None)
        if task.mode is Mode.REPLACE or led is Way.ANEW or known is None:
            return self._loaded(spec, sink, (table, now), position), position
        if led is Way.STAY or (led is Way.BATCH and moved is not None and moved.changes is None):
            sink.advance(position)
            return Written(), position
        if led is Way.BATCH and moved is not None and moved.changes is not None:
            return sink.write(moved.changes, position), position
        try:
            changes = self._between(spec, table, known, now, position.lsn)
        except PySparkException:
            # The former version went with its time.
            return self._loaded(spec, sink, (table, now), position), position
        return sink.write(changes, position), position

    def _between(self, spec: ViewSpec, table: DeltaSink, known: Held, now: Held, lsn: int) -> DataFrame:
        was, rows = (rows_at(self.spark, table.path, held) for held in (known, now))
        changes = many_changes(replace(spec, hidden=()), was, rows, lsn).persist()
        self.relations.at_end(changes.unpersist)
        changes.count()
        return changes

    def _loaded(self, spec: ViewSpec, sink: Sink, rows_of: tuple[DeltaSink, Held], position: Position) -> Written:
        table, now = rows_of
        rows = rows_at(self.spark, table.path, now)
        return sink.replace(upserts(replace(spec, hidden=()), rows, position.lsn), position)

    def _tell(self, spec: ViewSpec, position: Position, outcome: Outcome) -> None:
        if live_name(spec.name) == spec.name:
            self.refreshed[spec.name] = json.dumps(outcome.fields())
            metrics.refreshed(spec.name, outcome.how.value, outcome.keys, outcome.seconds)
        _log.info("view refreshed", view=spec.name, lsn=format_lsn(position.lsn), **outcome.fields())
