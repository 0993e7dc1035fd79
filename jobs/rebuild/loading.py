"""Views' twins loaded from offset zero, as of the position at which all views stood, in a thread beside the batches.

In: the views, those that read each other together; the boundary; what their relations held there. Out: sinks beside
with all rows, and where they stand. Keeps true: rows come from the topics alone where somebody has asked for that, and
else a query's from the tables that it reads, those of a view that only lacks a sink from its own table; nothing that
readers see is touched; what was read is freed in the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.errors import OperatorError
from cdc.log import get
from cdc.progress import Progress
from cdc.settings import Settings
from jobs.batch import TABLE, Target, Task, plan
from jobs.bulk.load import load_mirror
from jobs.changes import read_changes
from jobs.failures import translated
from jobs.native_rows import Unusual
from jobs.parts import session_for, side_by_side
from jobs.pipeline import Pipeline, held_tables, lowest_first
from jobs.rebuild.from_tables import HeldTable, TableRelations
from jobs.rebuild.from_topics import TopicRelations
from jobs.rebuild.twin_specs import twin_of
from jobs.refresh.difference import require_unique, upserts
from jobs.refresh.read import rows_at
from jobs.refresh.ways import noted
from jobs.session import REBUILD_POOL
from jobs.small_range import records_max
from jobs.spark_progress import job_group, tasks_done
from jobs.twins import live_name
from jobs.unfit import Watch, deleted, lacking, refused_by
from jobs.view import view_changes
from sinks.delta import BesideDelta, DeltaSink
from sinks.delta.held import Held
from sinks.protocol import OP, UPSERT, Position, Sink, SwappedSink, Unfit, Written
from sinks.spec import Kind, ViewSpec

_log = get(__name__)

_POOL = "spark.scheduler.pool"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The twins' sinks, and where they stand: a query's positions say what they were computed from."""

    specs: tuple[ViewSpec, ...]
    sinks: Mapping[Target, Sink]
    positions: Mapping[Target, Position]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be loaded, as of which boundary; `held` are the rows of what twins read there but twins.

    These are read `from_tables` where what they hold is not in question; what the views' own ones lack is `unfit`.
    """

    views: tuple[str, ...]
    twins: Mapping[Target, Target]
    boundary: Progress
    held: Mapping[str, Held]
    watch: Watch
    from_tables: bool = False
    unfit: Mapping[str, tuple[Unfit, ...]] = field(default_factory=dict)


class Loader:
    """One load; `share` and `cancel` are for other threads."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        pipeline: Pipeline,
        wanted: Wanted,
        on_written: Callable[[Target, Written], None],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._pipeline = pipeline
        self._wanted = wanted
        self._on_written = on_written
        self._specs = lowest_first([pipeline.specs[view] for view in wanted.views])
        self._twins = wanted.twins
        self._live = held_tables(pipeline.sinks)
        self._tables: dict[str, DeltaSink] = {}
        self._group = f"rebuild {' '.join(wanted.views)} {wanted.boundary.lsn}"
        self.rows: dict[str, int] = {}
        """How many each view has that was loaded so far."""
        self._done = 0
        self._read = 0.0
        self._cancelled = threading.Event()

    @property
    def from_tables(self) -> bool:
        """Whether queries are computed from tables, not from offset zero."""
        return self._wanted.from_tables

    def run(self) -> Loaded:
        """Load every sink."""
        sinks: dict[Target, Sink] = {}
        positions: dict[Target, Position] = {}
        for spec in self._specs:
            with job_group(self._spark, self._group), translated(f"view {spec.name}, loaded beside"):
                # Batches go on with half of the cores at least.
                self._spark.sparkContext.setLocalProperty(_POOL, REBUILD_POOL)
                twins = {live: twin for live, twin in self._twins.items() if live.view == spec.name}
                own = {twin: _beside(self._pipeline.sinks[live]) for live, twin in twins.items()}
                load = self._own_table if spec.name in self._wanted.held else self._by_kind(spec)
                positions |= load(spec, own) if own else {}
                sinks |= own
        return Loaded(tuple(twin_of(spec, self._wanted.views) for spec in self._specs), sinks, positions)

    def share(self) -> float:
        """How much of it is done, between 0 and 1: loaded sinks exactly, the present one by records or tasks."""
        steps = len(self._twins)
        now = max(self._read, tasks_done(self._spark, self._group).share) if self._done < steps else 0.0
        return min(1.0, (self._done + 0.9 * now) / steps) if steps else 1.0

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._cancelled.set()
        with suppress(Py4JError, OSError):
            self._spark.sparkContext.cancelJobGroup(self._group)

    def _by_kind(self, spec: ViewSpec) -> Callable[[ViewSpec, Mapping[Target, Sink]], dict[Target, Position]]:
        return self._query if spec.kind is Kind.QUERY else self._row_wise

    def _own_table(self, spec: ViewSpec, sinks: Mapping[Target, Sink]) -> dict[Target, Position]:
        """What the view's table holds already."""
        table, held, boundary = self._live[spec.name], self._wanted.held[spec.name], self._wanted.boundary
        rows = rows_at(session_for(self._spark, table.size(held.version).rows), table.path, held)
        rows = upserts(replace(spec, hidden=()), rows, boundary.lsn)
        tasks = self._ranges({twin: sink for twin, sink in sinks.items() if not twin.is_derived})
        positions: dict[Target, Position] = {}
        for twin, sink in sinks.items():
            if twin.is_derived:
                at = Position(boundary.lsn, boundary.source_ts_us, noted({spec.name: held}))
            else:
                at = replace(tasks[twin].position, unfit=self._wanted.unfit.get(spec.name, ()))
            positions[twin] = at
            self._replaced(twin, sink.replace(rows, at))
        return positions

    def _row_wise(self, spec: ViewSpec, sinks: Mapping[Target, Sink]) -> dict[Target, Position]:
        tasks = self._ranges(sinks)
        some = next(iter(tasks.values()))
        self._tables |= {twin.view: sink for twin, sink in sinks.items() if isinstance(sink, DeltaSink)}
        if self._is_table_alone(spec, sinks) and self._natively(spec, some, next(iter(sinks.values()))):
            return {some.target: some.position}
        changes = read_changes(
            self._spark,
            self._pipeline.tables[some.target.topic],
            self._settings.kafka,
            (some.start, some.end),
            (some.floor_lsn, some.position.lsn),
            self._wanted.watch,
        )
        try:
            refused = refused_by(spec, changes.unfit)
            rows = view_changes(deleted(changes.frame, refused), spec).where(F.col(OP) == UPSERT)
            unfit = lacking((), frozenset(), refused)
            positions = {twin: replace(task.position, unfit=unfit) for twin, task in tasks.items()}
            for twin, sink in sinks.items():
                content = side_by_side(rows, spec.key) if twin.sink == TABLE else rows
                self._replaced(twin, sink.replace(content, positions[twin]))
        finally:
            changes.release()
        return positions

    def _is_table_alone(self, spec: ViewSpec, sinks: Mapping[Target, Sink]) -> bool:
        """Whether its rows are a table's as they are, and go into Delta alone."""
        return spec.kind is Kind.MIRROR and len(sinks) == 1 and not self._wanted.watch.known

    def _natively(self, spec: ViewSpec, task: Task, sink: Sink) -> bool:
        """Without Spark, whose part alone would take longer; False where it is left to Spark."""
        if not isinstance(sink, BesideDelta):
            return False
        total, table = records_max(task.start, task.end), self._pipeline.tables[task.target.topic]
        try:
            written = load_mirror(self._settings, table, task, sink, lambda count: self._on_read(count / total))
        except Unusual as odd:
            _log.info("a rebuild is left to spark", view=spec.name, reason=str(odd))
            return False
        self._replaced(task.target, written)
        return True

    def _on_read(self, share: float) -> None:
        self._read += share
        if self._cancelled.is_set():
            raise OperatorError("nobody waits for this rebuild any more", "ask again")

    def _query(self, spec: ViewSpec, sinks: Mapping[Target, Sink]) -> dict[Target, Position]:
        boundary = self._wanted.boundary
        relations = self._from_tables(spec) if self._wanted.from_tables else self._from_topics(spec, sinks)
        at = Position(boundary.lsn, boundary.source_ts_us, {})
        positions: dict[Target, Position] = {}
        table: DeltaSink | None = None
        try:
            for twin, sink in sinks.items():  # the table comes first
                if table is None:
                    assert isinstance(sink, DeltaSink)
                    table, rows = sink, relations.answer(spec)
                    self._tables[twin.view] = table
                    if spec.plan.key_proof is None:
                        require_unique(spec, rows)
                    positions[twin] = replace(at, offsets=noted(self._held(spec)))
                else:
                    held = table.held()
                    rows = rows_at(self._spark, table.path, held)
                    positions[twin] = replace(at, offsets=noted({twin.view: held}))
                self._replaced(twin, sink.replace(upserts(spec, rows, at.lsn), positions[twin]))
        finally:
            relations.release()
        return positions

    def _from_topics(self, spec: ViewSpec, sinks: Mapping[Target, Sink]) -> TopicRelations:
        ranges = self._ranges([Target(spec.name, TABLE, topic) for topic in next(iter(sinks)).below])
        by_topic = {target.topic: task for target, task in ranges.items()}
        spark = session_for(self._spark, sum(records_max(task.start, task.end) for task in ranges.values()))
        return TopicRelations(spark, self._settings, self._pipeline, by_topic, self._wanted.watch)

    def _from_tables(self, spec: ViewSpec) -> TableRelations:
        held = self._held(spec)
        own = dict(zip(spec.relations, twin_of(spec, self._wanted.views).relations, strict=True))
        tables = {**self._live, **self._tables}
        specs = self._pipeline.specs
        return TableRelations(
            self._spark, {name: HeldTable(specs[name], tables[own[name]], held[own[name]]) for name in spec.relations}
        )

    def _held(self, spec: ViewSpec) -> dict[str, Held]:
        """What the query's relations held; those that are loaded with it are read as twins."""
        read = twin_of(spec, self._wanted.views).relations
        return {name: self._tables[name].held() if name in self._tables else self._wanted.held[name] for name in read}

    def _ranges(self, targets: Mapping[Target, Sink] | list[Target]) -> dict[Target, Task]:
        """All that their topics hold before the boundary."""
        boundary = self._wanted.boundary
        return {task.target: task for task in plan(dict.fromkeys(targets), boundary, boundary.lsn)}

    def _replaced(self, twin: Target, written: Written) -> None:
        self._done += 1
        view = live_name(twin.view)
        self.rows[view] = max(self.rows.get(view, 0), written.upserts)
        self._on_written(twin, written)


def _beside(sink: Sink) -> Sink:
    assert isinstance(sink, SwappedSink)
    return sink.beside()
