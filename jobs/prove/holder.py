"""Keeping apply at one position while the sinks are read: through the control topic, or in this process.

In: an LSN. Out: whether all views stand exactly there. Keeps true: once entered, apply starts no batch of its own; on
the way out, and when this process dies, it is free again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Protocol, Self

from cdc.errors import TransientError
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.control import ControlClient, Kind, State, apply_owner
from jobs.control.client import KeptRequest
from jobs.prove.result import OnProgress, Progress, unwatched

ANSWER_TIMEOUT_S: Final = 600.0
ABSENCE_MAX_S: Final = 90.0
"""Whoever starts apply anew waits for Spark, and until the broker has given up the one that died."""
_LOOK_EVERY_S: Final = 5.0


class Holder(Protocol):
    """A `with` in which apply stands still, but for the batch that `hold_at` asks for."""

    def __enter__(self) -> Self:
        """Let apply end its batch and begin no other."""
        ...

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        """Let apply run on."""
        ...

    def hold_at(self, lsn: int) -> bool:
        """Bring every view to exactly `lsn` and keep it there; False when they are beyond it."""
        ...


class TimedHolder:
    """Another holder, and for how long it held apply at a time, at most."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._began_s = 0.0
        self.longest_s = 0.0

    def __enter__(self) -> Self:
        self._holder.__enter__()
        self._began_s = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._holder.__exit__(kind, value, at)
        self.longest_s = max(self.longest_s, time.monotonic() - self._began_s)

    def hold_at(self, lsn: int) -> bool:
        """As the other one does."""
        return self._holder.hold_at(lsn)


class LocalHolder:
    """Where no apply process runs: `run_to` runs one batch to an LSN here, and says where the views stand then."""

    def __init__(self, run_to: Callable[[int], int]) -> None:
        self._run_to = run_to

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        return None

    def hold_at(self, lsn: int) -> bool:
        """Run the batch."""
        return self._run_to(lsn) == lsn


class ControlHolder:
    """Where an apply process runs: it is asked, and the request is renewed for as long as this `with` lasts."""

    def __init__(
        self, settings: Settings, *, on_progress: OnProgress = unwatched, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._settings = settings
        self._on_progress = on_progress
        self._timeout_s = timeout_s
        self._open = ExitStack()
        self._client: ControlClient
        self._kept: KeptRequest

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._client = opening.enter_context(ControlClient(self._settings))
            self._kept = opening.enter_context(self._client.keep(Kind.PAUSE))
            self._await("apply ends its batch", {State.PAUSED})
            self._open = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def hold_at(self, lsn: int) -> bool:
        """Ask for a batch that ends there."""
        self._kept.change(Kind.HOLD, lsn=lsn)
        return self._await(f"apply goes to {format_lsn(lsn)}", {State.HOLDING, State.REFUSED}) is State.HOLDING

    def _await(self, doing: str, states: set[State]) -> State:
        watch = _Watch(self._settings, doing, self._on_progress)
        return self._client.await_answer(self._kept.id, states, self._timeout_s, on_wait=watch).state


def watch_apply(settings: Settings, doing: str, on_progress: OnProgress) -> Callable[[], None]:
    """For whoever waits for an answer of apply: to be called meanwhile."""
    return _Watch(settings, doing, on_progress)


class _Watch:
    """While waiting: show that we do, and give up when apply has been gone for longer than a restart takes."""

    def __init__(self, settings: Settings, doing: str, on_progress: OnProgress) -> None:
        self._settings = settings
        self._doing = doing
        self._on_progress = on_progress
        self._seen = self._looked = time.monotonic()

    def __call__(self) -> None:
        self._on_progress(Progress(self._doing))
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        if apply_owner(self._settings) is not None:
            self._seen = now
        elif now - self._seen > ABSENCE_MAX_S:
            raise TransientError(
                f"apply has been gone for {ABSENCE_MAX_S:g} s", "start it: afterimage apply", code="APPLY_GONE"
            )
