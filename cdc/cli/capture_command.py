"""`afterimage capture` on a terminal or in a service: a bar for the snapshot, a line for what happens."""

from __future__ import annotations

from typing import Final

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cdc import metrics
from cdc.cli.capturing import CaptureRun
from cdc.cli.screen import err
from cdc.cli.stopping import stop_event
from cdc.cycles import look_seldom
from cdc.errors import CdcError
from cdc.metrics_server import serve_metrics
from cdc.settings import Settings
from snapshot.run import SnapshotProgress

_MADE_BETWEEN_LOOKS: Final = 100_000


def run_capture(settings: Settings) -> None:
    """Run until stopped."""
    look_seldom(_MADE_BETWEEN_LOOKS)
    stop = stop_event()
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as bar:
        task = bar.add_task("snapshot", total=None, rate="", visible=False)

        def report(state: SnapshotProgress) -> None:
            metrics.snapshot_read(state.read)
            rows, expected = sum(state.read.values()), sum(state.estimated.values())
            speed = bar.tasks[0].speed
            bar.update(
                task,
                completed=rows,
                total=max(rows, expected),
                rate=f"{speed:,.0f} rows/s" if speed else "",
                visible=len(state.done) < len(state.estimated),
            )

        def trouble(error: CdcError, wait_s: float) -> None:
            if err.is_terminal:
                err.print(f"[yellow]waiting[/] {escape(error.message)}; trying again in {wait_s:.0f} s")

        serve_metrics(settings.metrics, settings.metrics.capture_port)
        CaptureRun(settings, stop.wait, report, trouble).run()
