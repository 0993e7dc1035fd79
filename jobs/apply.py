"""Apply's driver: carries out the machine's effects against Kafka, Spark and the sinks, and starts over on failure.

In: settings. Out: views. Keeps true: one apply process at a time; after any error it asks the sinks anew where they
stand, so there is no memory that could disagree with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pyspark.sql import SparkSession

from cdc import metrics
from cdc.changes import Trouble
from cdc.errors import CdcError, TransientError
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.progress import Progress
from cdc.progress_log import ProgressLog
from cdc.rotation import may_be_replaced
from cdc.settings import Settings
from jobs.batch import Target, Task, hides_rows
from jobs.control import ControlServer, Kind, RunTo
from jobs.control import Run as Running
from jobs.dead_letters import DeadLetters
from jobs.dropping import Dropper
from jobs.ledger import Ledger
from jobs.left_out import LeftOutViews
from jobs.machine import Ask, Asked, Effect, Load, Locate, Record, Run, Swap, apply_machine
from jobs.mend import SinkMender
from jobs.pipeline import Pipeline, load_pipeline
from jobs.proving import ProofThread
from jobs.rebuild.rebuilds import Rebuilds
from jobs.recording import located, tidied
from jobs.refresh.refresher import Refresher
from jobs.tasks import TaskRunner
from jobs.unfit import LackingRows
from jobs.view_files import changed_views
from jobs.vigil import Vigil
from jobs.vouching import Vouching
from sinks.protocol import Position

_log = get(__name__)

_THREADS: Final = 8
_WAIT_S: Final = 0.2
_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 15.0


class _Changed(Exception):  # noqa: N818  not an error: a new session begins with what there is now
    """Raised inside the loop when a view's file has changed, or capture has announced another shape of a table."""


class Finished(Exception):  # noqa: N818  not an error: asked to stop, or caught up
    """Raised inside the loop when apply has done what it was asked to."""


class ApplyRun:
    """One apply process: owns the control topic, keeps Spark warm, runs the machine until stopped."""

    def __init__(
        self,
        settings: Settings,
        spark: SparkSession,
        control: ControlServer,
        stop_requested: Callable[[float], bool],
        *,
        once: bool = False,
        until_lsn: int | None = None,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._control = control
        self._stop_requested = stop_requested
        self._once = once
        self._until_lsn = until_lsn
        # Exactly there, and no further, can only a batch end that follows a complete one: run `once` before.
        self._settled = until_lsn is not None
        self._ledger = Ledger(settings.delta_root, settings.delta.storage_options)
        self._log = ProgressLog(settings.kafka, settings.pipeline)
        self._dead_letters = DeadLetters(settings)
        tolerated = settings.apply.unfit_values == "dead_letter"
        self._lacking = LackingRows(self._dead_letters, settings.apply.dead_letters_max, tolerated=tolerated)
        self._refresher: Refresher | None = None
        self._pipeline: Pipeline | None = None
        self._dropper = Dropper(settings, self._ledger, control)
        self._vigil = Vigil(settings, self._ledger)
        self._left_out = LeftOutViews(settings)
        self._vouching = Vouching(settings, control, self._ledger, self._lacking)
        self._rebuilds = Rebuilds(settings, spark, control, self._dead_letters, self._lacking)
        self._schemas, self._batch_s, self._waits = 0, 0.0, False
        self.proofs: ProofThread | None = None
        self.lsn = 0
        """Where all views stood last."""

    def mender(self) -> SinkMender:
        """What mends the sinks of the session, between two batches."""
        return SinkMender(self._spark, self._loaded, self._ledger, self._control.confirm_owner)

    def run(self) -> None:
        """Apply until stopped, caught up (`once`), or a person is needed (CdcError)."""
        backoff = _BACKOFF_FIRST_S
        try:
            while True:
                began_s = time.monotonic()
                try:
                    self._session()
                except Finished:
                    return
                except _Changed:
                    _log.info("tables or views have changed")
                except CdcError as error:
                    if self._control.is_owner() and self._rebuilds.takes_in_place(error):
                        continue
                    self._fail_requests(error)
                    heals = isinstance(error, TransientError) or (self.lsn > 0 and may_be_replaced(error))
                    if not heals or not self._control.is_owner():
                        raise
                    lasted = time.monotonic() - began_s > _BACKOFF_MAX_S
                    backoff = _BACKOFF_FIRST_S if lasted else min(backoff * 2, _BACKOFF_MAX_S)
                    say = _log.warning if isinstance(error, TransientError) else _log.error
                    say("apply starts over", code=error.code, reason=error.message, backoff_s=backoff)
                    if self._stop_requested(backoff):
                        return
        finally:
            self._rebuilds.end()
            self._log.close()

    def _session(self) -> None:
        # In this order: schemas that are newer than the boundary are read again when the next one tells of them.
        self._schemas = self._await_first_boundary().schemas
        self._vigil.begin()
        pipeline = load_pipeline(self._settings, self._left_out.tell, as_filed=self._rebuilds.in_place)
        targets = {(target.view, target.sink) for target in pipeline.sinks}
        metrics.kept(targets)
        self._left_out.loaded(pipeline)
        self._refresher, self._pipeline = Refresher(self._spark, pipeline), pipeline
        self._rebuilds.begin(self._refresher, pipeline)
        self._vouching.begin(self._refresher, pipeline)
        if self.proofs is not None:
            self.proofs.begin(targets)
        settled, self._settled = self._settled, False
        machine, answer = apply_machine(settled=settled), None
        while True:
            try:
                answer = self._carry_out(machine.send(answer))
            except _Changed:
                self._settled = settled
                raise

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Locate():
                return self._locate()
            case Ask():
                return self._ask(effect.lsn)
            case Run():
                return self._run(effect.tasks)
            case Load():
                return self._rebuilds.load(effect)
            case Swap():
                self._batch_s = time.monotonic()
                self._pipeline = self._rebuilds.swap(effect)
                return self._vouching.begin(self._queries, self._pipeline)
            case Record():
                return self._record(effect.positions, effect.rebuilt)

    def _await_first_boundary(self) -> Progress:
        told = False
        while (boundary := self._log.boundary(_WAIT_S)) is None:
            if not told:
                _log.info("waiting for capture's first snapshot to complete")
                told = True
            if self._stop_requested(_WAIT_S):
                raise Finished
        return boundary

    def _locate(self) -> Mapping[Target, Position | None]:
        sinks = self._loaded.sinks
        with ThreadPoolExecutor(_THREADS) as pool:
            own = dict(zip(sinks, pool.map(lambda sink: sink.position(), sinks.values()), strict=True))
        self._control.confirm_owner()
        self._rebuilds.clear()
        ledger = self._ledger.read()
        found = located(sinks, own, ledger)
        self._lacking.locate(found)
        self._queries.locate(found, ledger)
        self._vouching.located(ledger)
        for name, lines in changed_views({**self._loaded.specs, **self._loaded.coming.specs}, ledger):
            _log.info("view changed", view=name, difference=lines)
        for target, position in found.items():
            stands = format_lsn(position.lsn) if position is not None else "nowhere"
            _log.info("view found", view=target.view, sink=target.sink, lsn=stands)
        return found

    def _ask(self, lsn: int | None) -> Asked:
        """Wait a little for news, unless there are some already."""
        if self._stop_requested(0):
            raise Finished
        self._control.require_owner()
        self.lsn = lsn or 0
        if self._vigil.sees_other_files():
            raise _Changed
        if self._until_lsn is not None:
            return self._ask_for(self._until_lsn)
        boundary = self._fitting(self._log.boundary())
        if lsn is not None and boundary is not None and boundary.lsn <= lsn:
            self._finish_when_done(lsn, boundary)
            self._vigil.require_stores(self._loaded.following(boundary, self._queries.failing.troubles), lsn)
            boundary = self._fitting(self._log.boundary(_WAIT_S))
        self._control.poll()
        if self._loaded.is_asked_otherwise(self._control.requests()) and self._vigil.sees_other_files(at_once=True):
            raise _Changed
        if self.proofs is not None:
            self.proofs.attend(self._control, self.mender())
        for view in self._dropper.attend(self._loaded.specs, self._loaded.coming.specs):
            self._vouching.dropped(view)
        step = self._control.step(lsn or 0)
        rebuild = self._rebuilds.wanted(self._control.requests(), boundary)
        idle = not rebuild and not isinstance(step, Running)
        if idle and self._stop_requested(_WAIT_S / 4):
            raise Finished
        return Asked(None if self._must_wait() else boundary, step, rebuild, _now_us())

    def _must_wait(self) -> bool:
        hidden = hides_rows(self._log.newest(), _now_us())
        if hidden and not self._waits:
            _log.warning("waiting for capture to publish the rest of a large transaction", lsn=format_lsn(self.lsn))
        self._waits = hidden
        return hidden

    def _ask_for(self, until_lsn: int) -> Asked:
        """One batch that ends exactly there, once capture has got there."""
        if self.lsn >= until_lsn:
            raise Finished
        boundary = self._fitting(self._log.boundary())
        if boundary is not None and boundary.lsn < until_lsn:
            self._vigil.require_capture(boundary.lsn, until_lsn)
            boundary = self._fitting(self._log.boundary(_WAIT_S))
        return Asked(boundary, RunTo(until_lsn), now_us=_now_us())

    def _fitting(self, boundary: Progress | None) -> Progress | None:
        """The boundary, if the tables are those that this session began with."""
        if boundary is not None and boundary.schemas != self._schemas:
            raise _Changed
        return boundary

    def _finish_when_done(self, lsn: int, newest: Progress) -> None:
        is_idle = not self._control.requests() and not self._rebuilds.is_changing(newest)
        if self._once and is_idle and lsn >= newest.lsn:
            raise Finished

    def _run(self, tasks: Sequence[Task]) -> frozenset[Target]:
        wait_s = self._batch_s + self._settings.apply.interval_s - time.monotonic()
        if wait_s > 0 and self._stop_requested(wait_s):
            raise Finished
        self._batch_s = time.monotonic()
        self._control.confirm_owner()
        stayed = TaskRunner(self._settings, self._queries, self._dead_letters, self._lacking).run(tasks)
        self._rebuilds.batch_ended()
        return stayed

    def _record(self, positions: Mapping[Target, Position], rebuilt: Mapping[str, str]) -> None:
        self._control.confirm_owner()
        lsn, seconds = self._vouching.record(positions), time.monotonic() - self._batch_s
        metrics.BATCH_SECONDS.observe(seconds)
        _log.info("batch done", lsn=format_lsn(lsn), seconds=round(seconds, 3))
        self._rebuilds.recorded(rebuilt, lsn)
        if tidied(self._loaded.sinks.values()):
            self._control.confirm_owner()
            self._vouching.vouch(positions)
        if self._rebuilds.has_changed:
            raise _Changed

    def _fail_requests(self, error: CdcError) -> None:
        """Who waits for a rebuild hears why it failed, unless it will be tried again."""
        for request in self._control.requests():
            if request.kind is Kind.REBUILD and not isinstance(error, TransientError):
                self._control.fail(request.id, Trouble(error.code, error.message, error.hint or ""))

    @property
    def _loaded(self) -> Pipeline:
        assert self._pipeline is not None
        return self._pipeline

    @property
    def _queries(self) -> Refresher:
        assert self._refresher is not None
        return self._refresher


def _now_us() -> int:
    return time.time_ns() // 1000
