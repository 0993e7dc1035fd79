"""`afterimage recover`: two bars with the time that is left, then what was found and what to do next."""

from __future__ import annotations

import json

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cdc.cli.capturing import CaptureRun
from cdc.cli.screen import err, out
from cdc.cli.stopping import stop_event
from cdc.lsn import format_lsn
from cdc.recover.run import Recovered
from cdc.settings import Settings


def run_recover(settings: Settings, *, force: bool, as_json: bool) -> None:
    """Recover; interrupted, it is to be repeated from the start."""
    stop = stop_event()
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as bars:
        topics, rows = bars.add_task("reading the topics", total=None), bars.add_task("comparing rows", total=None)

        def report(state: Recovered) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            bars.update(topics, completed=state.offsets, total=state.offsets_total)
            bars.update(rows, completed=state.rows, total=max(state.rows, state.rows_total))

        run = CaptureRun(settings, stop.wait, lambda _: None, lambda *_: None)
        found = run.recover(report, force=force)
    _tell(found, as_json=as_json)


def _tell(found: Recovered, *, as_json: bool) -> None:
    lsn = format_lsn(found.lsn)
    if as_json:
        counts = {"rows": found.rows, "changed": found.changed, "gone": found.gone}
        out.print_json(json.dumps({"lsn": lsn, **counts}))
        return
    out.print(f"recovered at {lsn}: {found.rows:,} rows compared, {found.changed:,} sent anew, {found.gone:,} deleted")
    err.print("Start capture again: [bold]afterimage up[/] or [bold]afterimage capture[/]; then: afterimage prove")
