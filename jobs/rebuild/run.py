"""One rebuild while it is under way: a thread that loads the twin, and proves it where that was asked for.

In: a wish, a Loader. Out: what was loaded, whether it may be shown, or the error; how far it is, twice a second.
Keeps true: nothing that readers see is touched here; what fails fails this rebuild and no batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from cdc.errors import CdcError, OperatorError
from cdc.log import get
from cdc.settings import Settings
from jobs.batch import Target
from jobs.control import Answer, ControlServer, Request, State
from jobs.control.kept import Rebuilding
from jobs.control.records import Withdrawn
from jobs.failures import where
from jobs.prove import ControlHolder, Extras, Progress, ViewProof, prove
from jobs.rebuild.course import Course, Doing, RowsRead
from jobs.rebuild.loading import Loaded, Loader
from jobs.rebuild.wishes import Wish
from jobs.twins import SINKS, live_name
from sinks.spec import ViewSpec

_log = get(__name__)

_EVERY_S: Final = 0.5
_KEPT_EVERY: Final = 4
_END_S: Final = 30.0
_OTHERS_EVERY: Final = 6


class RebuildRun:
    """Its attributes are read by apply's own thread."""

    def __init__(self, settings: Settings, control: ControlServer, wish: Wish, specs: Sequence[ViewSpec]) -> None:
        self.wish = wish
        self.loaded: Loaded | None = None
        self.may_swap = False
        self.stays: frozenset[Target] = frozenset()
        self.error: CdcError | None = None
        self._settings = settings
        self._control = control
        self._specs = specs
        self._is_proved = False
        self._began_s = time.monotonic()
        self._course = Course()
        self._proof: RowsRead | None = None
        self.others: tuple[Request, ...] = ()
        """Those who wait for other rebuilds until this one is over."""
        self._stop = threading.Event()
        self._loader: Loader | None = None
        self._threads: list[threading.Thread] = []

    @property
    def is_loading(self) -> bool:
        """Whether it has begun."""
        return self._loader is not None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began_s

    def takes(self, wish: Wish | None) -> bool:
        """Whether this rebuild will do for all who wait by now.

        Not where one wants a proof and it is too late, or wants it from offset zero and it began with tables.
        """
        if wish is None:
            return False
        is_less = self._loader is not None and self._loader.from_tables and bool(wish.requests)
        self.wish = wish
        return not is_less and (self._is_proved or not (wish.prove and self.may_swap))

    def load(self, loader: Loader, stays: frozenset[Target] = frozenset()) -> None:
        """Begin; what `stays` as it is is not loaded."""
        self._loader, self.stays = loader, stays
        for name, work in (("rebuild", self._work), ("rebuild-progress", self._tell)):
            self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """It is done, or nobody wants it any more."""
        self._stop.set()
        if self._loader is not None and self.loaded is None:
            self._loader.cancel()
        for thread in self._threads:
            thread.join(_END_S)

    def _work(self) -> None:
        assert self._loader is not None
        try:
            loaded = self._loader.run()
            _log.info("view loaded beside", view=", ".join(self.wish.views), seconds=round(self.seconds, 3))
            self.loaded = loaded
            if self.wish.prove and loaded.sinks:
                self._prove(loaded)
                self._is_proved = True
            self.may_swap = True
        except CdcError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001  whatever it is, batches go on
            _log.error(
                "rebuild met a defect", view=", ".join(self.wish.views), error=type(error).__name__, at=where(error)
            )
            self.error = OperatorError(
                f"the rebuild failed: {type(error).__name__}",
                "this is a defect: report it, with the line `rebuild met a defect` of apply's log",
            )

    def _prove(self, loaded: Loaded) -> None:
        """By the same comparison as any sink; batches bring the twin to the LSN of the snapshot."""
        by_name = {(live_name(target.view), target.sink): sink for target, sink in loaded.sinks.items()}
        specs = [
            replace(spec, sinks=tuple(option for option in spec.sinks if option.name in SINKS)) for spec in self._specs
        ]
        assert self._loader is not None
        self._proof = RowsRead(self._loader.rows, {spec.name: len(spec.sinks) for spec in specs})
        holder = ControlHolder(self._settings, on_progress=self._on_progress)
        extras = Extras(rest=self._rest)
        make_sink = lambda spec, option: by_name[spec.name, option.name]  # noqa: E731
        proofs = prove(self._settings, specs, make_sink, holder, self._on_progress, extras)
        if not all(proof.holds for proof in proofs):
            raise OperatorError(
                f"what was loaded differs from Postgres, so it is not shown: {_differences(proofs)}",
                "the live view is as it was; `afterimage prove` compares that one. Report it",
                code="REBUILD_DIFFERS",
            )

    def _on_progress(self, progress: Progress) -> None:
        if self._proof is not None:
            self._proof.take(progress)
        self._rest(0)

    def _rest(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise OperatorError("nobody waits for this rebuild any more", "ask again")

    def _tell(self) -> None:
        turn = 0
        while not self._stop.wait(_EVERY_S):
            try:
                self._say(turn)
            except CdcError as error:
                _log.warning("progress not told", code=error.code)
            turn += 1
        try:
            for view in self.wish.views:
                self._control.keep(Withdrawn(Rebuilding(view, 0, "", 0.0, None).id))
        except CdcError as error:
            _log.warning("progress not withdrawn", code=error.code)

    def _say(self, turn: int) -> None:
        doing, now_ms = self._doing(), time.time_ns() // 1_000_000
        at = self._course.at(doing, self._done(doing), prove=self.wish.prove)
        for request in self.wish.requests:
            running = Answer(request.id, State.RUNNING, now_ms, progress=at.share, message=doing.value)
            self._control.tell(replace(running, left_s=at.left_s))
        if turn % _OTHERS_EVERY == 0:
            tell_waiting(self._control, self.others, f"waits for the rebuild of {', '.join(self.wish.views)}")
        if turn % _KEPT_EVERY == 0:
            said = f"declared anew, {doing.value}" if self.wish.is_change else doing.value
            for view in self.wish.views:
                self._control.keep(Rebuilding(view, now_ms, said, at.share, at.left_s))

    def _doing(self) -> Doing:
        if self.loaded is None:
            return Doing.LOADING
        return Doing.CATCHING_UP if self.may_swap else Doing.PROVING

    def _done(self, doing: Doing) -> float | None:
        """How much of the phase is done."""
        if doing is Doing.PROVING:
            return self._proof.share() if self._proof is not None else None
        return self._loader.share() if doing is Doing.LOADING and self._loader is not None else None


def tell_waiting(control: ControlServer, requests: Iterable[Request], why: str) -> None:
    """Whoever hears nothing for minutes gives up."""
    for request in requests:
        control.answer(request.id, State.RUNNING, message=why)


def _differences(proofs: Sequence[ViewProof]) -> str:
    """Counts, and some keys, by sink."""
    found = []
    for proof in proofs:
        keys = [", ".join(f"{name}={value}" for name, value in each.key.items()) for each in proof.examples[:3]]
        some = f" ({'; '.join(keys)})" if keys else ""
        if not proof.holds:
            found.append(f"{proof.sink}: {proof.problem or f'{proof.differences} keys{some}'}")
    return "; ".join(found)
