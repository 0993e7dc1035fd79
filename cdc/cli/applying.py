"""`afterimage apply`: becomes the pipeline's one apply process, warms Spark up, and runs until stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape

from cdc.cli.screen import err
from cdc.cli.stopping import stop_event
from cdc.log import get
from cdc.settings import Settings
from jobs.apply import ApplyRun
from jobs.control import ControlServer
from jobs.session import spark_session

_log = get(__name__)

_ACQUIRE_S = 60.0


def run_apply(settings: Settings, *, once: bool, master: str | None) -> None:
    """Apply until stopped; with `once` until caught up."""
    if master is not None:
        settings = settings.model_copy(update={"apply": settings.apply.model_copy(update={"master": master})})
    stop = stop_event()
    with ControlServer(settings) as control:
        control.acquire(_ACQUIRE_S, _tell_who_runs)
        spark = spark_session(settings, f"afterimage {settings.pipeline}")
        try:
            _log.info("apply is ready", master=settings.apply.master)
            ApplyRun(settings, spark, control, stop.wait, once=once).run()
        finally:
            spark.stop()


@contextmanager
def local_apply(settings: Settings) -> Iterator[Callable[[int], int]]:
    """Be the apply process for a while: a function that brings all views to exactly one LSN, if they are not beyond."""
    with ControlServer(settings) as control:
        control.acquire(_ACQUIRE_S, _tell_who_runs)
        spark = spark_session(settings, f"afterimage {settings.pipeline}")
        try:
            # Completes what a killed apply may have left half done.
            ApplyRun(settings, spark, control, threading.Event().wait, once=True).run()

            def run_to(lsn: int) -> int:
                run = ApplyRun(settings, spark, control, threading.Event().wait, until_lsn=lsn)
                run.run()
                return run.lsn

            yield run_to
        finally:
            spark.stop()


def apply_once_here(settings: Settings) -> None:
    """Catch up and do what is asked for on the control topic, in this process."""
    with ControlServer(settings) as control:
        control.acquire(_ACQUIRE_S, _tell_who_runs)
        spark = spark_session(settings, f"afterimage {settings.pipeline}")
        try:
            ApplyRun(settings, spark, control, threading.Event().wait, once=True).run()
        finally:
            spark.stop()


def _tell_who_runs(owner: str | None, waited_s: float) -> None:
    if owner is not None:
        _log.info("another apply process runs this pipeline, waiting for it to end", owner=owner)
        if err.is_terminal:
            err.print(f"[yellow]waiting[/] apply is run by {escape(owner)} ({waited_s:.0f} s)")
