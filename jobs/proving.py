"""Proofs inside the apply process: those that the configuration wants by the clock, and repairs for commands.

In: settings, requests, the mender between two batches. Out: answers, metrics, Proved records. Keeps true: one at a time
in one thread; sinks are mended by apply's own thread alone; whatever a proof meets, apply goes on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final

from cdc import metrics
from cdc.errors import CdcError, ConfigError, OperatorError
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.control import Answer, ControlServer, Kind, Proved, Request, State, newest_proofs, publish_proofs
from jobs.declarations import captured_tables, declared_otherwise, live_views
from jobs.prove import ControlHolder, Extras, Mend, Mended, Mender, Progress, TimedHolder, ViewProof, prove
from sinks.registry import make_sink
from sinks.spec import ViewSpec

_log = get(__name__)

DIFFERS: Final = "VIEW_DIFFERS"
_LOOK_S: Final = 0.1
_TELL_S: Final = 1.0
_END_S: Final = 30.0
_RETRY_S: Final = 60.0


class _EndedError(Exception):
    """Raised inside the thread when apply ends."""


class ProofThread:
    """Use in a `with` around apply's loop, which calls `attend` between two batches."""

    def __init__(self, settings: Settings, *, by_clock: bool = True) -> None:
        self._settings = settings
        self._every_s = settings.prove.every_s if by_clock else None
        self._lock = threading.Condition()
        self._asked: deque[Request] = deque()
        self._seen: set[str] = set()
        self._mends: deque[tuple[Mend, Future[Mended]]] = deque()
        self._answers: deque[Answer] = deque()
        self._stop = threading.Event()
        self._repairing: Request | None = None
        self._told_s = 0.0
        self._is_measured = False
        self._thread = threading.Thread(target=self._run, name="proofs", daemon=True)

    def __enter__(self) -> ProofThread:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        with self._lock:
            self._lock.notify_all()
        self._thread.join(_END_S)

    def begin(self, targets: Collection[tuple[str, str]]) -> None:
        """Apply keeps these views in these sinks: until the next proof the metrics are what the newest one found."""
        if self._every_s is None or self._is_measured:
            return
        self._is_measured = True
        try:
            found = newest_proofs(self._settings)
        except CdcError as error:
            _log.warning("newest proofs not read", code=error.code, reason=error.message)
            return
        for at in found.keys() & set(targets):
            measure(found[at])

    def attend(self, control: ControlServer, mender: Mender) -> None:
        """Take new requests, mend what waits for it, and tell what there is to tell."""
        with self._lock:
            for request in control.requests():
                if request.kind is Kind.REPAIR and request.id not in self._seen:
                    self._seen.add(request.id)
                    self._asked.append(request)
                    self._lock.notify_all()
            mends, self._mends = self._mends, deque()
            answers, self._answers = self._answers, deque()
        for mend, done in mends:
            try:
                done.set_result(mender(mend))
            except CdcError as error:
                done.set_exception(error)
        for answer in answers:
            control.tell(answer)

    def _run(self) -> None:
        due_s = self._first_due_s()
        while not self._stop.is_set():
            request = self._next(due_s)
            if request is not None:
                self._guarded(partial(self._repair, request))
            elif due_s is not None and self._every_s is not None and time.monotonic() >= due_s:
                began_s = time.monotonic()
                done = self._guarded(self._prove_all)
                due_s = began_s + self._every_s if done else time.monotonic() + min(self._every_s, _RETRY_S)

    def _next(self, due_s: float | None) -> Request | None:
        """A request, or None when it is time for a proof."""
        with self._lock:
            if not self._asked and not self._stop.is_set():
                self._lock.wait(None if due_s is None else max(0.0, due_s - time.monotonic()))
            return self._asked.popleft() if self._asked else None

    def _first_due_s(self) -> float | None:
        """As long after the newest proof as configured, so that restarts neither repeat nor forget it."""
        if self._every_s is None:
            return None
        try:
            newest = max(
                (proved.ts_ms / 1000 for proved in newest_proofs(self._settings).values()), default=time.time()
            )
        except CdcError:
            newest = time.time()
        return time.monotonic() + min(self._every_s, max(0.0, newest + self._every_s - time.time()))

    def _guarded(self, work: Callable[[], None]) -> bool:
        """Whether it could be done; what a proof meets stops no batch."""
        try:
            work()
        except _EndedError:
            return False
        except CdcError as error:
            metrics.PROVE_FAILURES.labels(error.code).inc()
            _log.warning("proof not made", code=error.code, reason=error.message)
            self._answer(State.FAILED, message=error.message, code=error.code, hint=error.hint)
            return False
        except Exception as error:  # noqa: BLE001  of whatever kind
            metrics.PROVE_FAILURES.labels(type(error).__name__).inc()
            _log.error("proof failed", error=type(error).__name__)
            self._answer(State.FAILED, message=f"the proof failed: {type(error).__name__}")
            return False
        finally:
            self._repairing = None
        return True

    def _prove_all(self) -> None:
        """What the clock asks for."""
        began_s = time.monotonic()
        specs = self._live_views()
        holder = self._holder()
        proofs = self._prove(list(specs.values()), holder, mends=False)
        while other := declared_otherwise(specs.values(), (now := self._live_views()).values()):
            changed = {spec.name for spec in other}
            proofs = [proof for proof in proofs if proof.view not in changed] + self._prove(other, holder, mends=False)
            specs = now
        proofs = _of(now, proofs)
        differing = {proof.view for proof in proofs if proof.differences}
        wrong = [spec for spec in specs.values() if spec.name in differing]
        tell(proofs)
        if wrong and self._settings.prove.repair:
            found = self._prove(wrong, holder, mends=True)
            mended = {(proof.view, proof.sink): proof.mended for proof in found}
            again = [
                replace(each, mended=mended[each.view, each.sink]) for each in self._prove(wrong, holder, mends=False)
            ]
            again = _of(self._live_views(), again)
            tell(again)
            proofs = [proof for proof in proofs if proof.view not in differing] + again
        metrics.PROVE_HELD_SECONDS.set(holder.longest_s)
        publish_proofs(self._settings, [proved(proof) for proof in proofs])
        held = sum(proof.holds for proof in proofs)
        seconds = round(time.monotonic() - began_s, 3)
        _log.info("views proved", held=held, of=len(proofs), seconds=seconds, held_s=round(holder.longest_s, 3))

    def _live_views(self) -> dict[str, ViewSpec]:
        return live_views(self._settings, captured_tables(self._settings), _left_out)

    def _repair(self, request: Request) -> None:
        """What `prove --repair` asks for, of one view; the command proves again."""
        self._repairing = request
        specs = self._live_views()
        if request.view not in specs:
            hint = "is its view file the same here?"
            raise OperatorError(f"there is no view {request.view}", hint, code="UNKNOWN_VIEW")
        proofs = self._prove([specs[request.view]], self._holder(), mends=True)
        problem = next((proof.problem for proof in proofs if proof.problem is not None), None)
        mended = {proof.sink: proof.mended for proof in proofs if proof.mended is not None}
        counts = {sink: (each.written, each.deleted, each.left) for sink, each in mended.items()}
        lsn = max(proof.lsn for proof in proofs)
        self._answer(State.DONE, lsn=lsn, message=problem, mended=counts)

    def _prove(self, specs: Sequence[ViewSpec], holder: TimedHolder, *, mends: bool) -> list[ViewProof]:
        extras = Extras(mender=self._mend if mends else None, rest=self._rest)
        return prove(
            self._settings,
            specs,
            lambda spec, option: make_sink(option, spec, self._settings),
            holder,
            self._on_progress,
            extras,
        )

    def _holder(self) -> TimedHolder:
        return TimedHolder(ControlHolder(self._settings, on_progress=self._on_progress))

    def _mend(self, mend: Mend) -> Mended:
        """Let apply's own thread do it."""
        done: Future[Mended] = Future()
        with self._lock:
            self._mends.append((mend, done))
        while True:
            try:
                mended = done.result(_LOOK_S)
            except NotYetError:
                self._on_progress(Progress("mending", mend.view, mend.sink))
            else:
                metrics.PROVE_MENDED.inc(mended.written + mended.deleted)
                return mended

    def _rest(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _EndedError

    def _on_progress(self, _: Progress) -> None:
        """Whoever waits for a repair hears that it goes on."""
        if self._stop.is_set():
            raise _EndedError
        if time.monotonic() - self._told_s > _TELL_S:
            self._told_s = time.monotonic()
            self._answer(State.RUNNING)

    def _answer(self, state: State, **fields: Any) -> None:
        if self._repairing is not None:
            answer = Answer(self._repairing.id, state, time.time_ns() // 1_000_000, **fields)
            with self._lock:
                self._answers.append(answer)


def proved(proof: ViewProof) -> Proved:
    """What is kept of a proof."""
    counts = proof.holds, proof.rows, proof.differences, round(proof.seconds, 3)
    return Proved(proof.view, proof.sink, time.time_ns() // 1_000_000, proof.lsn, *counts, proof.problem)


def tell(proofs: Sequence[ViewProof]) -> None:
    """Into the log and the metrics: a view that differs is an error that a person should see."""
    for proof in proofs:
        measure(proved(proof))
        if not proof.holds:
            _log.error(
                "view differs from the source" if proof.problem is None else "view not proved",
                code=DIFFERS,
                view=proof.view,
                sink=proof.sink,
                lsn=format_lsn(proof.lsn),
                missing=proof.missing,
                extra=proof.extra,
                different=proof.different,
                duplicate=proof.duplicate,
                problem=proof.problem,
            )


def measure(proof: Proved) -> None:
    """Into the metrics."""
    metrics.proved(
        (proof.view, proof.sink),
        ts_s=proof.ts_ms / 1000,
        holds=proof.holds,
        rows=proof.rows,
        differences=proof.differences,
        seconds=proof.seconds,
    )


def _of(live: Mapping[str, ViewSpec], proofs: Sequence[ViewProof]) -> list[ViewProof]:
    """Those of views that are still kept in these sinks: what was dropped meanwhile has no proof."""
    targets = {(spec.name, option.name) for spec in live.values() for option in spec.sinks}
    return [proof for proof in proofs if (proof.view, proof.sink) in targets]


def _left_out(view: str, error: ConfigError) -> None:
    _log.warning("view not proved", view=view, code=error.code, reason=error.message, remedy=error.hint)
