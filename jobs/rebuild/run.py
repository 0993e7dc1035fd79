"""One rebuild while it is under way: a thread that loads the twin, and proves it where that was asked for.

In: a wish, a Loader. Out: what was loaded, whether it may be shown, or the error; how far it is, twice a second.
Keeps true: nothing that readers see is touched here; what fails fails this rebuild and no batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cdc.errors import CdcError, OperatorError
from cdc.log import get
from cdc.settings import Settings
from jobs.batch import Target
from jobs.control import ControlServer, State
from jobs.control.kept import Rebuilding
from jobs.control.records import Withdrawn
from jobs.failures import where
from jobs.prove import ControlHolder, Extras, ViewProof, prove
from jobs.rebuild.loading import Loaded, Loader
from jobs.rebuild.wishes import Wish
from jobs.twins import SINKS, live_name
from sinks.spec import ViewSpec

_log = get(__name__)

_EVERY_S: Final = 0.5
_KEPT_EVERY: Final = 4
_END_S: Final = 30.0
_LOADED: Final = 0.9
"""The share of the whole that loading takes; the rest is catching up and the swap, or the proof."""


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
        self._told = 0.0
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

    def _on_progress(self, _: object) -> None:
        self._rest(0)

    def _rest(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise OperatorError("nobody waits for this rebuild any more", "ask again")

    def _tell(self) -> None:
        turn = 0
        while not self._stop.wait(_EVERY_S):
            self._told = max(self._told, self._share())
            try:
                for request in self.wish.requests:
                    self._control.answer(request.id, State.RUNNING, progress=self._told)
                if turn % _KEPT_EVERY == 0:
                    self._keep()
            except CdcError as error:
                _log.warning("progress not told", code=error.code)
            turn += 1
        try:
            for view in self.wish.views:
                self._control.keep(Withdrawn(self._standing(view).id))
        except CdcError as error:
            _log.warning("progress not withdrawn", code=error.code)

    def _share(self) -> float:
        assert self._loader is not None
        return _LOADED if self.loaded is not None else _LOADED * self._loader.share()

    def _keep(self) -> None:
        for view in self.wish.views:
            self._control.keep(self._standing(view))

    def _standing(self, view: str) -> Rebuilding:
        left_s = self.seconds * (1 - self._told) / self._told if self._told > 0 else None
        doing = "loading" if self.loaded is None else "catching up" if self.may_swap else "proving"
        doing = f"declared anew, {doing}" if self.wish.is_change else doing
        return Rebuilding(view, time.time_ns() // 1_000_000, doing, round(self._told, 3), left_s)


def _differences(proofs: Sequence[ViewProof]) -> str:
    """Counts, and some keys, by sink."""
    found = []
    for proof in proofs:
        keys = [", ".join(f"{name}={value}" for name, value in each.key.items()) for each in proof.examples[:3]]
        some = f" ({'; '.join(keys)})" if keys else ""
        if not proof.holds:
            found.append(f"{proof.sink}: {proof.problem or f'{proof.differences} keys{some}'}")
    return "; ".join(found)
