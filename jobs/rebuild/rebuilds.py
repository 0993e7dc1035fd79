"""Rebuilds as the machine wants them: which is under way, what was loaded for it, the swap in every sink, the answers.

In: requests, views whose files have changed, the machine's Load and Swap. Out: Rebuild values for the machine, answers
for commands. Keeps true: one at a time; sinks are swapped by apply's own thread, between two batches, the table first;
a session that ends leaves none; a change that can't be shown leaves the former declaration live, and is told.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

from cdc.changes import Trouble
from cdc.errors import CdcError, TransientError
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.progress import Progress
from cdc.settings import Settings
from jobs.batch import TABLE, Target, is_stopped
from jobs.bulk.load import clear_loads
from jobs.control import ControlServer, Kind, Request, State
from jobs.control.kept import Rebuilding, Unshown
from jobs.control.proved import kept_records
from jobs.control.records import Withdrawn
from jobs.dead_letters import DeadLetters
from jobs.machine import Load, Rebuild, Swap
from jobs.pipeline import Pipeline, held_tables
from jobs.rebuild.loading import Loader, Wanted
from jobs.rebuild.run import RebuildRun, tell_waiting
from jobs.rebuild.showing import clear_beside, show
from jobs.rebuild.twin_specs import twin_of
from jobs.rebuild.unshown import Declared, UnshownChanges, declared
from jobs.rebuild.wishes import Wish, obstacle, wishes
from jobs.refresh.failing import waiting
from jobs.refresh.refresher import Refresher
from jobs.twins import is_twin_name, live_name, twin_name
from jobs.unfit import LackingRows
from sinks.protocol import Written

_log = get(__name__)

_WAITING_S: Final = 3.0


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
        self._wishes: dict[str, Wish] = {}
        self._unshown = UnshownChanges(control)
        self._told_s = 0.0
        self.in_place = False
        """Whether batches replace what is wanted, since they can't go on beside it."""
        self.has_changed = False
        """Whether views are declared otherwise since the session began."""

    def takes_in_place(self, error: CdcError) -> bool:
        """Whether to go on although a batch has failed: what it met may be damage that a rebuild mends."""
        with suppress(CdcError):
            # A batch may outlast a request that was renewed meanwhile.
            self._control.poll()
        coming = self._live is not None and self._live.coming.groups
        wanted = coming or any(request.kind is Kind.REBUILD for request in self._control.requests())
        if self.in_place or not wanted or isinstance(error, TransientError):
            self.in_place = False
            return False
        _log.warning("batches fail, so what is to be rebuilt is replaced in place", code=error.code)
        self.in_place = True
        return True

    def begin(self, queries: Refresher, live: Pipeline) -> None:
        """A new session: what another one loaded is thrown away."""
        self.end()
        if self._live is not None:
            clear_beside(self._live.coming.sinks)
        self._queries, self._live, self.has_changed = queries, live, False
        if not self._is_swept:
            for record in kept_records(self._settings):
                if isinstance(record, Rebuilding | Unshown):
                    self._control.keep(Withdrawn(record.id))
            self._is_swept = True
        self._unshown.keep({declared(live.coming.specs[view] for view in group) for group in live.coming.groups})

    def clear(self) -> None:
        """Remove what a killed process has left beside."""
        clear_loads(self._settings)
        for sinks in (self._pipeline.coming.sinks, self._pipeline.sinks):
            clear_beside(sinks)

    def end(self) -> None:
        """The session is over, or the rebuild."""
        run, self._run = self._run, None
        if run is None:
            return
        run.end()
        if self._queries is not None:
            for view in run.wish.views:
                self._queries.leave(twin_name(view))

    def is_changing(self, boundary: Progress) -> bool:
        """Whether what a file declares is still to be shown, and can be."""
        return bool(self._changes([], boundary))

    def wanted(self, requests: Iterable[Request], boundary: Progress | None) -> dict[str, Rebuild]:
        """Those for views that exist and can be rebuilt, in the order of asking; the others are refused at once."""
        asked = [each for each in requests if each.kind is Kind.REBUILD and self._may(each, boundary)]
        self._wishes = wishes(asked, [] if self.in_place else self._changes(asked, boundary))
        run = self._run
        if run is not None and self._has_failed(run):
            self._wishes.pop(run.wish.id, None)
        elif run is not None and not run.takes(self._wishes.get(run.wish.id)):
            self._give_up(run)
        if not self.in_place and self._run is None and self._wishes:
            self._run = self._begun(next(iter(self._wishes.values())))
        self._tell_waiting()
        if self.in_place:
            return {wish.id: Rebuild(wish.views[0], in_place=True) for wish in self._wishes.values()}
        known = {name: self._rebuild(wish) for name, wish in self._wishes.items()}
        run = self._run
        return known if run is None else {run.wish.id: self._standing(run)} | _without(known, run)

    def load(self, effect: Load) -> None:
        """Begin to load, with what the relations hold now."""
        run, queries = self._run, self._session
        assert run is not None
        views = run.wish.views
        live = self._pipeline.renewed(views) if run.wish.is_change else self._pipeline
        specs = [live.specs[view] for view in views]
        twins = self._rebuild(run.wish).twins(live.sinks)
        read = {name: at.view for at, twin in twins.items() for name in twin.reads if not is_twin_name(name)}
        read |= {at.view: at.view for at in self._stays(run.wish) if at.sink == TABLE}
        stopped = next((name for name in sorted(read) if name in queries.failing.troubles), None)
        if stopped is not None:  # its rows are of another position, if there are any
            self._fail(run.wish, waiting(read[stopped], stopped))
            return
        queries.will_read(twin_of(spec, views) for spec in specs)
        held = {view: sink.held() for view, sink in held_tables(live.sinks).items() if view in read}
        unfit = {at.view: self._lacking.of(at) for at in live.sinks if at.view in views and at.sink == TABLE}
        # Whoever asks for a rebuild wants it from offset zero.
        from_tables = run.wish.is_change and not run.wish.requests
        wanted = Wanted(views, twins, effect.boundary, held, self._lacking.watch(()), from_tables, unfit)
        _log.info("rebuild loads", view=", ".join(views), lsn=format_lsn(effect.boundary.lsn))
        run.load(Loader(self._spark, self._settings, live, wanted, self._took), self._stays(run.wish))

    def swap(self, effect: Swap) -> Pipeline:
        """The pipeline as it is from now on; whoever is killed in between leaves each sink right where it stands."""
        run, before = self._run, self._pipeline
        assert run is not None
        assert run.loaded is not None
        self._control.confirm_owner()
        after = before.renewed(run.wish.views) if run.wish.is_change else before
        show(effect, run.loaded, before, after, (self._session, self._lacking))
        self.has_changed = after is not before
        return after

    def batch_ended(self) -> None:
        """A view whose query fails can't be rebuilt; what a file declares now must not fail, whatever it did before."""
        for view, trouble in self._session.failing.troubles.items():
            for wish in list(self._wishes.values()):
                is_new_one = wish.is_change and not self._stays(wish)
                if live_name(view) in wish.views and (is_twin_name(view) or not is_new_one):
                    self._fail(wish, trouble)

    def recorded(self, rebuilt: Mapping[str, str], lsn: int) -> None:
        """These are done."""
        self.in_place = self.in_place and not rebuilt and bool(self._wishes)
        for name in rebuilt:
            wish = self._wishes[name]
            if self._run is not None and self._run.wish.id == name:
                self.end()
            if wish.is_change:
                self._unshown.withdraw(self._declared(wish.views))
            _log.info("view rebuilt", view=", ".join(wish.views), lsn=format_lsn(lsn))
            for request in wish.requests:
                self._control.answer(request.id, State.DONE, lsn=lsn)

    def _begun(self, wish: Wish) -> RebuildRun:
        _log.info("rebuild begins", view=", ".join(wish.views), changed=wish.is_change)
        for view in wish.views if wish.requests else ():
            self._session.failing.try_again(view)
        specs = {**self._pipeline.specs, **(self._pipeline.coming.specs if wish.is_change else {})}
        return RebuildRun(self._settings, self._control, wish, [specs[view] for view in wish.views])

    def _tell_waiting(self) -> None:
        """What is loaded tells how far it is, and the others that they wait; before that nobody else would."""
        run = self._run
        own = run.wish.id if run is not None else None
        others = tuple(each for wish in self._wishes.values() if wish.id != own for each in wish.requests)
        if run is not None and run.is_loading:
            run.others = others
        elif time.monotonic() - self._told_s > _WAITING_S:
            self._told_s = time.monotonic()
            if run is not None:
                tell_waiting(self._control, run.wish.requests, "waits for all views to be at one position")
                tell_waiting(self._control, others, f"waits for the rebuild of {', '.join(run.wish.views)}")
            else:
                tell_waiting(self._control, others, "is replaced in the next batch")

    def _changes(self, asked: Iterable[Request], boundary: Progress | None) -> list[tuple[str, ...]]:
        """What files declare, but for what failed unless it is asked for again, and what is made of stopped tables."""
        coming, found = self._pipeline.coming, []
        views = {request.view for request in asked}
        for group in coming.groups:
            if views & {*group}:
                self._unshown.withdraw(self._declared(group))
            stops = boundary is not None and any(is_stopped(at, boundary) for at in coming.sinks if at.view in group)
            if not self._unshown.waits(self._declared(group)) and not stops:
                found.append(group)
        return found

    def _declared(self, group: Iterable[str]) -> Declared:
        return declared(self._pipeline.coming.specs[view] for view in group)

    def _may(self, request: Request, boundary: Progress | None) -> bool:
        why = obstacle(request.view or "", self._pipeline, boundary)
        if why is not None:
            self._control.fail(request.id, why)
        return why is None

    def _has_failed(self, run: RebuildRun) -> bool:
        """What passes by itself makes apply start over, and the rebuild with it; else the command is told."""
        if isinstance(run.error, TransientError):
            raise run.error
        if run.error is not None:
            _log.error("rebuild failed", view=", ".join(run.wish.views), code=run.error.code)
            wish = self._wishes.get(run.wish.id, run.wish)
            self._fail(wish, Trouble(run.error.code, run.error.message, run.error.hint or ""))
        return run.error is not None

    def _fail(self, wish: Wish, trouble: Trouble) -> None:
        for request in wish.requests:
            self._control.fail(request.id, trouble)
        if wish.is_change:
            seconds = self._run.seconds if self._run is not None else 0.0
            self._unshown.tell(self._declared(wish.views), wish.views, trouble, seconds)
        if self._run is not None and self._run.wish.id == wish.id:
            self._give_up(self._run)

    def _give_up(self, run: RebuildRun) -> None:
        """Nobody wants it any more, or it can't be done: what it has loaded goes at once."""
        self.end()
        sinks = {**self._pipeline.sinks, **self._pipeline.coming.sinks}
        clear_beside({at: sink for at, sink in sinks.items() if at.view in run.wish.views})

    def _rebuild(self, wish: Wish) -> Rebuild:
        becomes = (at for at in self._pipeline.coming.sinks if at.view in wish.views)
        return Rebuild(wish.views[0], becomes=tuple(becomes) if wish.is_change else (), stays=self._stays(wish))

    def _stays(self, wish: Wish) -> frozenset[Target]:
        """What is live already as the files say; whoever asks for a rebuild wants all of it anew."""
        if self._run is not None and self._run.wish.id == wish.id and self._run.is_loading:
            return self._run.stays
        return self._pipeline.stays(wish.views) if wish.is_change and not wish.requests else frozenset()

    def _standing(self, run: RebuildRun) -> Rebuild:
        wanted = self._rebuild(run.wish)
        if run.loaded is None:
            return replace(wanted, is_loading=run.is_loading)
        if self._session.join(run.loaded.specs, run.loaded.sinks, run.loaded.positions):
            for twin, position in run.loaded.positions.items():
                self._lacking.settle(twin, position.unfit)
        return replace(wanted, loaded=run.loaded.positions, may_swap=run.may_swap)

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


def _without(known: dict[str, Rebuild], run: RebuildRun) -> dict[str, Rebuild]:
    return {name: each for name, each in known.items() if name != run.wish.id}
