"""`afterimage apply`: becomes the pipeline's one apply process, warms Spark up, and runs until stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.markup import escape

from cdc.cli.screen import err
from cdc.cli.stopping import stop_event
from cdc.errors import CdcError, OperatorError, TransientError
from cdc.log import get
from cdc.metrics_server import serve_metrics
from cdc.settings import Settings
from jobs.apply import ApplyRun, Finished
from jobs.control import ControlServer
from jobs.prove import Mend, Mended
from jobs.proving import ProofThread
from jobs.session import spark_session

_log = get(__name__)

_ACQUIRE_S: Final = 3600.0
_RETRY_S: Final = 1.0
_STOP_S: Final = 60.0


def run_apply(settings: Settings, *, once: bool, master: str | None) -> None:
    """Apply until stopped; with `once` until caught up."""
    if master is not None:
        settings = settings.model_copy(update={"apply": settings.apply.model_copy(update={"master": master})})
    stop = stop_event()
    serve_metrics(settings.metrics, settings.metrics.apply_port)
    spark = spark_session(settings, f"afterimage {settings.pipeline}")
    stop_event(stop)  # pyspark has put its own handler of Ctrl-C in place
    try:
        while not stop.is_set():
            if _apply_while_owner(settings, spark, stop, once=once):
                return
    finally:
        # Where the JVM has died, that is not to hide the error that tells of it.
        with suppress(Py4JError, OSError):
            spark.stop()


def _apply_while_owner(settings: Settings, spark: SparkSession, stop: threading.Event, *, once: bool) -> bool:
    """Whether it is done; False when Kafka has lost touch with this process, which then asks to own again."""

    def on_wait(owner: str | None, waited_s: float) -> None:
        if stop.is_set():
            raise Finished
        _tell_who_runs(owner, waited_s)

    try:
        with ControlServer(settings) as control:
            control.acquire(_ACQUIRE_S, on_wait)
            _log.info("apply is ready", master=settings.apply.master)
            run = ApplyRun(settings, spark, control, stop.wait, once=once)
            with ProofThread(settings, by_clock=not once) as proofs:
                run.proofs = proofs
                run.run()
            return True
    except Finished:
        return True
    except CdcError as error:
        if not isinstance(error, TransientError) and error.code != "APPLY_FENCED":
            raise
        _log.warning("apply asks to own the pipeline again", code=error.code, reason=error.message)
        return stop.wait(_RETRY_S)


class LocalApply:
    """The apply process for a while: runs batches to exactly one LSN, and mends what stands there."""

    def __init__(self, settings: Settings, spark: SparkSession, control: ControlServer) -> None:
        self._settings = settings
        self._spark = spark
        self._control = control
        self._last: ApplyRun | None = None

    def run_to(self, lsn: int) -> int:
        """Bring all views there, if they are not beyond; where they stand then."""
        self._last = ApplyRun(self._settings, self._spark, self._control, threading.Event().wait, until_lsn=lsn)
        self._last.run()
        return self._last.lsn

    def mend(self, mend: Mend) -> Mended:
        """Where the views stand."""
        assert self._last is not None
        return self._last.mender()(mend)


@contextmanager
def local_apply(settings: Settings) -> Iterator[LocalApply]:
    """Be the apply process."""
    with ControlServer(settings) as control:
        control.acquire(_ACQUIRE_S, _tell_who_runs)
        spark = spark_session(settings, f"afterimage {settings.pipeline}")
        try:
            # Completes what a killed apply may have left half done.
            ApplyRun(settings, spark, control, threading.Event().wait, once=True).run()
            yield LocalApply(settings, spark, control)
        finally:
            spark.stop()


class ApplyHere:
    """Catches up and does what is asked for on the control topic, in a thread of this process.

    Use it in a `with`: at its end it is waited for, and where that comes by an error it is asked to stop.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="apply", daemon=True)

    def __enter__(self) -> ApplyHere:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        is_answered = kind is None or issubclass(kind, OperatorError)
        if not is_answered:
            self._stop.set()
        self._is_over.set()
        self._thread.join(None if is_answered else _STOP_S)
        # What apply has answered, if it has, was made of this.
        if self._error is not None and is_answered and value is not self._error:
            raise self._error from value

    def require(self) -> None:
        """Raise what it ended with."""
        if self._error is not None:
            raise self._error

    def _guarded(self) -> None:
        try:
            self._run()
        except Finished:
            pass
        except BaseException as error:  # noqa: BLE001  raised again by whoever waits
            self._error = error

    def _run(self) -> None:
        with ControlServer(self._settings) as control:
            control.acquire(_ACQUIRE_S, self._on_wait)
            spark = spark_session(self._settings, f"afterimage {self._settings.pipeline}")
            try:
                ApplyRun(self._settings, spark, control, self._stop.wait, once=True).run()
            finally:
                spark.stop()

    def _on_wait(self, owner: str | None, waited_s: float) -> None:
        """Another process that has begun to apply meanwhile may have answered."""
        if self._is_over.is_set():
            raise Finished
        _tell_who_runs(owner, waited_s)


def _tell_who_runs(owner: str | None, waited_s: float) -> None:
    if owner is not None:
        _log.info("another apply process runs this pipeline, waiting for it to end", owner=owner)
        if err.is_terminal:
            err.print(f"[yellow]waiting[/] apply is run by {escape(owner)} ({waited_s:.0f} s)")
