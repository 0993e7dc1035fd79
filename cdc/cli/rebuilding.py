"""`afterimage rebuild`: views from offset zero beside the live ones, then a swap of each, by the running apply or here.

In: the views' names. Out: how far it is, then where each stands. Interrupting it leaves the live views as they were.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cdc.cli.asking import ask_apply
from cdc.cli.proving import Wanted, run_prove
from cdc.cli.screen import err
from cdc.cli.views import named_views
from cdc.errors import CdcError, ConfigError, OperatorError
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.control import Answer, Kind
from jobs.pipeline import lowest_first
from jobs.twins import SINKS


def run_rebuild(settings: Settings, names: Sequence[str], *, all_views: bool, prove: bool) -> int:
    """One after the other, what is read before what reads it; with `prove` nothing is shown that is not equal."""
    if bool(names) == all_views:
        raise ConfigError("which views?", "afterimage rebuild VIEW.., or afterimage rebuild --all")
    left_out: dict[str, ConfigError] = {}
    specs = lowest_first(named_views(settings, names, left_out.__setitem__ if all_views else None))
    refused: list[CdcError] = []
    for spec in specs:
        started = time.monotonic()
        try:
            answer = rebuild_view(settings, spec.name, prove=prove)
        except OperatorError as error:
            # One that has stopped alone, say, keeps none of the others from it.
            err.print(f"[red]not rebuilt[/] {escape(spec.name)}: {escape(error.message)}", soft_wrap=True)
            refused.append(error)
            continue
        lsn = format_lsn(answer.lsn) if answer.lsn is not None else "the newest position"
        told = f"[green]rebuilt[/] {escape(spec.name)} at {lsn} in {time.monotonic() - started:.1f} s"
        err.print(told, soft_wrap=True)
    for view, wrong in left_out.items():
        told = (
            f"[red]not rebuilt[/] {escape(view)}: {escape(wrong.message)}\n  [bold]remedy[/] {escape(wrong.hint or '')}"
        )
        err.print(told, soft_wrap=True)
    if refused:
        raise refused[0]
    # A topic has no rows beside those that readers see: it is compared afterwards.
    late = [spec.name for spec in specs if prove and any(option.name not in SINKS for option in spec.sinks)]
    differs = run_prove(settings, late, Wanted()) if late else 0
    return int(bool(differs or left_out))


def rebuild_view(settings: Settings, view: str, *, prove: bool = False) -> Answer:
    """Ask for it and wait, with a bar."""
    columns = (
        TextColumn("rebuilding {task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(escape(view), total=1.0)

        def on_progress(answer: Answer) -> None:
            bar.update(task, completed=answer.progress or 0.0)

        return ask_apply(settings, Kind.REBUILD, view, on_progress, prove=prove)
