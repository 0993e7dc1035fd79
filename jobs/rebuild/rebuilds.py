"""Rebuilds as the machine wants them: which is under way, what was loaded for it, the swap in every sink, the answers.

In: requests, the machine's Load and Swap. Out: Rebuild values for the machine, answers for commands. Keeps true: one at
a time; sinks are swapped by apply's own thread, between two batches, the table first; a session that ends leaves none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from cdc.errors import CdcError, TransientError
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.progress import Progress
from cdc.settings import Settings
from jobs.batch import TABLE, Target, is_stopped
from jobs.control import ControlServer, Kind, Request, State
from jobs.control.proved import kept_records
from jobs.control.records import Rebuilding, Withdrawn
from jobs.dead_letters import DeadLetters
from jobs.machine import Load, Rebuild, Swap
from jobs.pipeline import Pipeline
from jobs.rebuild.loading import Loader, Wanted
from jobs.rebuild.run import RebuildRun
from jobs.refresh.refresher import Refresher
from jobs.refresh.ways import noted
from jobs.twins import live_name, twin_name
from jobs.unfit import LackingRows
from sinks.delta import DeltaSink
from sinks.history.columns import HISTORY
from sinks.protocol import Position, Sink, SwappedSink, Written

_log = get(__name__)


class Rebuilds:
    """Of one apply process; `begin` a session with what it reads and writes."""

    def __init__(
        self,
        settings: Settings,
        spark: SparkSession,
        control: ControlServer,
        dead_letters: DeadLetters,
        lacking: LackingRows,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._control = control
        self._dead_letters = dead_letters
        self._lacking = lacking
        self._run: RebuildRun | None = None
        self._queries: Refresher | None = None
        self._live: Pipeline | None = None
        self._is_swept = False
        self._in_place = False
        self._asked: dict[str, Request] = {}

    def takes_in_place(self, error: CdcError) -> bool:
        """Whether to go on although a batch has failed: what it met may be damage that a wanted rebuild mends."""
        wanted = any(request.kind is Kind.REBUILD for request in self._control.requests())
        if self._in_place or not wanted or isinstance(error, TransientError):
            self._in_place = False
            return False
        _log.warning("batches fail, so what is to be rebuilt is replaced in place", code=error.code)
        self._in_place = True
        return True

    def begin(self, queries: Refresher, live: Pipeline) -> None:
        """A new session: what another one loaded is thrown away."""
        self.end()
        self._queries, self._live = queries, live
        if not self._is_swept:
            for record in kept_records(self._settings):
                if isinstance(record, Rebuilding):
                    self._control.keep(Withdrawn(record.id))
            self._is_swept = True

    def end(self) -> None:
        """The session is over, or the rebuild."""
        run, self._run = self._run, None
        if run is None:
            return
        run.end()
        if self._queries is not None:
            self._queries.leave(twin_name(run.request.view or ""))

    def wanted(self, requests: Iterable[Request], boundary: Progress | None) -> dict[str, Rebuild]:
        """Those for views that exist and can be rebuilt, in the order of asking; the others are refused at once."""
        asked = {each.id: each for each in requests if each.kind is Kind.REBUILD and self._may(each, boundary)}
        under_way = self._run
        if under_way is not None and self._has_failed(under_way):
            asked.pop(under_way.request.id, None)
        elif under_way is not None and under_way.request.id not in asked:
            self._give_up(under_way)
        self._asked = asked
        if self._in_place:
            return {name: Rebuild(request.view or "", in_place=True) for name, request in asked.items()}
        if self._run is None and asked:
            self._run = self._begun(next(iter(asked.values())))
        known = {name: Rebuild(request.view or "") for name, request in asked.items()}
        run = self._run
        return known if run is None else {run.request.id: self._standing(run)} | _without(known, run)

    def load(self, effect: Load) -> None:
        """Begin to load, with what the relations hold now."""
        run, queries, live = self._run, self._session, self._pipeline
        assert run is not None
        held = {name: queries.relations.held(name) for name in live.specs[effect.view].relations}
        wanted = Wanted(effect.view, effect.boundary, held, self._lacking.watch(()))
        _log.info("rebuild loads", view=effect.view, lsn=format_lsn(effect.boundary.lsn))
        run.load(Loader(self._spark, self._settings, live, wanted, self._took))

    def swap(self, effect: Swap) -> None:
        """Sink by sink; whoever is killed in between leaves each right where it stands."""
        run, queries, live = self._run, self._session, self._pipeline
        assert run is not None
        assert run.loaded is not None
        self._control.confirm_owner()
        for target, twin in effect.twins.items():
            position = self._position(queries, live, (target, twin), effect.positions[target])
            _swapped(live.sinks[target]).adopt(run.loaded.sinks[twin], position)
            self._lacking.settle(target, position.unfit)
            queries.swapped(target, position)
            _log.info("view swapped", view=target.view, sink=target.sink, lsn=format_lsn(position.lsn))
        queries.leave(run.loaded.spec.name)
        for target in effect.twins:
            _swapped(live.sinks[target]).clear()

    def batch_ended(self) -> None:
        """A view whose query fails can't be rebuilt."""
        for view, trouble in self._session.failing.troubles.items():
            for request in self._asked.values():
                if request.view == live_name(view):
                    self._fail(request, f"{trouble.message}; {trouble.remedy}")

    def recorded(self, rebuilt: Mapping[str, str], lsn: int) -> None:
        """These are done."""
        self._in_place = self._in_place and not rebuilt
        for request, view in rebuilt.items():
            if self._run is not None and self._run.request.id == request:
                self.end()
            _log.info("view rebuilt", view=view, lsn=format_lsn(lsn))
            self._control.answer(request, State.DONE, lsn=lsn)

    def _begun(self, request: Request) -> RebuildRun:
        assert request.view is not None
        _log.info("rebuild begins", view=request.view)
        self._session.failing.try_again(request.view)
        return RebuildRun(self._settings, self._control, request, self._pipeline.specs[request.view])

    def _may(self, request: Request, boundary: Progress | None) -> bool:
        view, sinks = request.view or "", self._pipeline.sinks
        why = None
        if view not in self._pipeline.specs:
            why = f"there is no view {view}"
        elif boundary is not None and any(each.view == view and is_stopped(each, boundary) for each in sinks):
            why = f"the table of {view} has stopped: see `afterimage status`"
        if why is not None:
            self._control.answer(request.id, State.FAILED, message=why)
        return why is None

    def _has_failed(self, run: RebuildRun) -> bool:
        """What passes by itself makes apply start over, and the rebuild with it; else the command is told."""
        if isinstance(run.error, TransientError):
            raise run.error
        if run.error is not None:
            _log.error("rebuild failed", view=run.request.view, code=run.error.code)
            self._fail(run.request, run.error.message)
        return run.error is not None

    def _fail(self, request: Request, message: str) -> None:
        self._control.answer(request.id, State.FAILED, message=message)
        if self._run is not None and self._run.request.id == request.id:
            self._give_up(self._run)

    def _give_up(self, run: RebuildRun) -> None:
        """Nobody wants it any more, or it can't be done: what it has loaded goes at once."""
        self.end()
        clear_beside({at: sink for at, sink in self._pipeline.sinks.items() if at.view == run.request.view})

    def _standing(self, run: RebuildRun) -> Rebuild:
        assert run.request.view is not None
        if run.loaded is None:
            return Rebuild(run.request.view)
        if self._session.join(run.loaded.spec, run.loaded.sinks, run.loaded.positions):
            for twin, position in run.loaded.positions.items():
                self._lacking.settle(twin, position.unfit)
        return Rebuild(run.request.view, run.loaded.positions, run.may_swap)

    def _position(
        self, queries: Refresher, live: Pipeline, pair: tuple[Target, Target], position: Position
    ) -> Position:
        """Where the live one stands then; a query's sinks name the rows of the table that was swapped before them."""
        target, twin = pair
        if not target.is_derived:
            return self._lacking.marked(twin, position)
        if target.sink == TABLE:
            return queries.marked(twin, position)
        table = next(sink for at, sink in live.sinks.items() if (at.view, at.sink) == (target.view, TABLE))
        assert isinstance(table, DeltaSink)
        return replace(position, offsets=noted({target.view: table.held()}))

    def _took(self, twin: Target, written: Written) -> None:
        self._dead_letters.take(replace(twin, view=live_name(twin.view)), written.rejected)

    @property
    def _session(self) -> Refresher:
        assert self._queries is not None
        return self._queries

    @property
    def _pipeline(self) -> Pipeline:
        assert self._live is not None
        return self._live


def clear_beside(sinks: Mapping[Target, Sink]) -> None:
    """Remove what was loaded and never shown."""
    for target, sink in sinks.items():
        if target.sink != HISTORY and isinstance(sink, SwappedSink):
            sink.clear()


def _swapped(sink: Sink) -> SwappedSink:
    assert isinstance(sink, SwappedSink)
    return sink


def _without(known: dict[str, Rebuild], run: RebuildRun) -> dict[str, Rebuild]:
    return {request: each for request, each in known.items() if request != run.request.id}
