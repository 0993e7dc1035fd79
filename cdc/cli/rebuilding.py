"""`afterimage rebuild`: a view from offset zero beside the live one, then one swap, by the running apply or here."""

from __future__ import annotations

import time
from typing import Final

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cdc.cli.proving import Wanted, run_prove
from cdc.cli.screen import err
from cdc.cli.views import named_views
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.control import Answer, ControlClient, Kind, State, apply_owner

_SILENCE_S: Final = 600.0


def run_rebuild(settings: Settings, name: str, *, then_prove: bool) -> int:
    """Rebuild one view; with `then_prove` the exit code is the proof's."""
    (spec,) = named_views(settings, [name])
    started = time.monotonic()
    answer = rebuild_view(settings, spec.name)
    lsn = format_lsn(answer.lsn) if answer.lsn is not None else "the newest position"
    err.print(f"[green]rebuilt[/] {escape(name)} at {lsn} in {time.monotonic() - started:.1f} s")
    return run_prove(settings, [name], Wanted()) if then_prove else 0


def rebuild_view(settings: Settings, view: str) -> Answer:
    """Ask for it and wait, with a bar."""
    columns = (
        TextColumn("rebuilding {task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with (
        Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar,
        ControlClient(settings) as client,
        client.keep(Kind.REBUILD, view=view) as kept,
    ):
        task = bar.add_task(escape(view), total=1.0)

        def on_progress(answer: Answer) -> None:
            bar.update(task, completed=answer.progress or 0.0)

        if apply_owner(settings) is None:
            from cdc.cli.applying import apply_once_here

            apply_once_here(settings)
        return client.await_answer(kept.id, {State.DONE}, _SILENCE_S, on_progress)
