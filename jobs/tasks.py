"""A batch's tasks carried out on Spark: each range of a topic is read once and goes into all sinks that want it.

In: tasks. Out: rows in the sinks, durably, and what was refused in the dead-letter topic. Tables and sinks of one stage
work side by side in threads; the first error is raised when all have come to rest. A query that fails stops alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark.sql import functions as F  # noqa: N812

from cdc.log import get
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.batch import TABLE, Mode, Offsets, Target, Task, held_back, stages
from jobs.bulk.load import load_mirror
from jobs.bulk.told import Told
from jobs.changes import BULK_RECORDS_MAX, Changes, read_changes
from jobs.dead_letters import DeadLetters
from jobs.every_change import read_every_change
from jobs.failures import translated
from jobs.memory import LARGE_RECORDS, give_back
from jobs.native_rows import Unusual
from jobs.parts import side_by_side
from jobs.refresh.refresher import Refresher
from jobs.refresh.relations import Moved
from jobs.small_range import records_max
from jobs.twins import is_twin
from jobs.unfit import LackingRows, deleted, refused_by
from jobs.view import view_changes
from sinks.delta import DeltaSink
from sinks.history.columns import HISTORY
from sinks.protocol import OP, UPSERT, Position, Written
from sinks.spec import Kind

_log = get(__name__)

_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class _Range:
    """What is read once."""

    topic: str
    start: Offsets
    end: Offsets
    floor_lsn: int
    ceiling_lsn: int
    every_change: bool
    """A history takes all changes, any other sink the last one of each key."""


class TaskRunner:
    """Runs the tasks of one pipeline."""

    def __init__(
        self,
        settings: Settings,
        refresher: Refresher,
        dead_letters: DeadLetters,
        lacking: LackingRows,
    ) -> None:
        self._settings = settings
        self._refresher = refresher
        self._spark = refresher.spark
        self._pipeline = refresher.pipeline
        self._dead_letters = dead_letters
        self._lacking = lacking

    def run(self, tasks: Sequence[Task]) -> frozenset[Target]:
        """Carry out all of them, stage by stage; the targets of queries that failed, and of what depends on them."""
        stayed: set[Target] = set()
        is_large = sum(records_max(task.start, task.end) for task in tasks) > LARGE_RECORDS
        try:
            for at, stage in enumerate(stages(tasks)):
                if is_large and at > 0:
                    give_back()
                failed = {target.view for target in stayed}
                held = [task.target for task in stage if held_back(task, failed)]
                self._refresher.hold_back(held)
                stayed |= {*held, *self._stage([task for task in stage if task.target not in held])}
        finally:
            self._refresher.end_batch()
            if is_large:
                give_back()
        return frozenset(stayed)

    def _stage(self, tasks: Sequence[Task]) -> Collection[Target]:
        """The targets that stay where they are."""
        done: dict[Target, Written | None] = {}
        ranges: dict[_Range, list[Task]] = defaultdict(list)
        derived: list[Task] = []
        for task in tasks:
            if task.target.is_derived:
                derived.append(task)
            elif task.mode is Mode.ADVANCE:
                self._pipeline.sinks[task.target].advance(self._lacking.marked(task.target, task.position))
            else:
                ranges[_range(task)].append(task)
        with ThreadPoolExecutor(_THREADS) as pool:
            futures = [pool.submit(self._read_and_write, key, group) for key, group in ranges.items()]
            futures += [pool.submit(self._refresh, task) for task in derived]
            wait(futures)
        for future in futures:
            done |= future.result()
        for target, what in done.items():
            if what is not None and not is_twin(target):
                self._dead_letters.take(target, what.rejected)
        return [target for target, what in done.items() if what is None]

    def _read_and_write(self, key: _Range, tasks: Sequence[Task]) -> dict[Target, Written | None]:
        if len(tasks) == 1 and (loaded := self._loaded(tasks[0])) is not None:
            return {tasks[0].target: loaded}
        read = read_every_change if key.every_change else partial(read_changes, is_marked=all(map(self._marks, tasks)))
        changes = read(
            self._spark,
            self._pipeline.tables[key.topic],
            self._settings.kafka,
            (key.start, key.end),
            (key.floor_lsn, key.ceiling_lsn),
            self._lacking.watch(task.target for task in tasks),
        )
        try:
            with ThreadPoolExecutor(_THREADS) as pool:
                futures = {task.target: pool.submit(self._write, task, changes) for task in tasks}
                wait(futures.values())
            return {target: future.result() for target, future in futures.items()}
        finally:
            # Queries may read them as long as the batch lasts.
            self._refresher.relations.at_end(changes.release)

    def _marks(self, task: Task) -> bool:
        """Whether it is written without Spark, however many rows a batch has."""
        is_mirror = self._pipeline.specs[task.target.view].kind is Kind.MIRROR
        sink = self._pipeline.sinks[task.target]
        return is_mirror and task.mode is Mode.WRITE and isinstance(sink, DeltaSink) and sink.marks

    def _loaded(self, task: Task) -> Written | None:
        """All rows of a large mirror, without Spark; None where it is for Spark, or not large."""
        target, sink = task.target, self._pipeline.sinks[task.target]
        records, watch = records_max(task.start, task.end), self._lacking.watch([target])
        is_plain = task.mode is Mode.REPLACE and self._pipeline.specs[target.view].kind is Kind.MIRROR
        if not (is_plain and isinstance(sink, DeltaSink)) or records <= BULK_RECORDS_MAX or watch.known:
            return None
        beside, told = sink.beside(), Told("view loading", records, view=target.view)
        try:
            written = load_mirror(self._settings, self._pipeline.tables[target.topic], task, beside, told.on_read)
        except Unusual as odd:
            _log.info("a load is left to spark", view=target.view, reason=str(odd))
            sink.clear()
            return None
        lacking = self._lacking.withhold(target, (), frozenset(), replaced=True)
        position = replace(task.position, unfit=lacking)
        sink.supersede(None, beside, position)
        sink.clear()
        self._lacking.settle(target, lacking)
        self._ended(target, position, written, replaced=True)
        return written

    def _refresh(self, task: Task) -> dict[Target, Written | None]:
        return {task.target: self._refresher.run(task)}

    def _write(self, task: Task, changes: Changes) -> Written:
        target, spec = task.target, self._pipeline.specs[task.target.view]
        replaced = task.mode is Mode.REPLACE or changes.truncated_at is not None
        refused = refused_by(spec, changes.unfit)
        lacking = self._lacking.withhold(target, refused, changes.touched, replaced=replaced)
        position = replace(task.position, unfit=lacking)
        sink = self._pipeline.sinks[target]
        is_table = target.sink == TABLE
        is_read = is_table and target.view in self._refresher.relations
        relation = sink if isinstance(sink, DeltaSink) and is_read else None
        with translated(f"view {target.view} into {target.sink}"):
            if changes.empty and not replaced:
                sink.advance(position)
                written = Written()
            else:
                every = target.sink == HISTORY
                rows = changes.frame if every else view_changes(deleted(changes.frame, refused), spec)
                if replaced:
                    content = rows if every else rows.where(F.col(OP) == UPSERT)
                    written = sink.replace(side_by_side(content, spec.key) if is_table else content, position)
                else:
                    before = relation.held() if relation is not None else None
                    written = sink.write(rows, position)
                    if before is not None:
                        self._refresher.relations.note(target.view, Moved(before, rows, changes.count))
        self._lacking.settle(target, lacking)
        if not changes.empty or replaced:
            self._ended(target, position, written, replaced=replaced)
        return written

    def _ended(self, target: Target, position: Position, written: Written, *, replaced: bool) -> None:
        _log.info(
            "view replaced" if replaced else "view written",
            view=target.view,
            sink=target.sink,
            lsn=format_lsn(position.lsn),
            upserts=written.upserts,
            deletes=written.deletes,
        )


def _range(task: Task) -> _Range:
    target = task.target
    return _Range(target.topic, task.start, task.end, task.floor_lsn, task.position.lsn, target.sink == HISTORY)
