"""`afterimage rebuild`: views from offset zero beside the live ones, then a swap of each, by the running apply or here.

In: the views' names. Out: how far it is, then where each stands. Interrupting it leaves the live views as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

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

_LINE_EVERY_S: Final = 10.0


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
    """Ask for it and wait; on a terminal with a bar, elsewhere with a line from time to time."""
    columns = (
        TextColumn("rebuilding {task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(escape(view), total=1.0, left="")
        lines = Lines(view)

        def on_progress(answer: Answer) -> None:
            doing, left = answer.message or "rebuilding", _left(answer)
            bar.update(task, description=escape(f"{view}: {doing}"), left=left)
            if answer.progress is not None:
                bar.update(task, completed=answer.progress)
            lines.heard(answer)

        def on_wait(doing: str) -> None:
            if not lines.has_heard:
                bar.update(task, description=escape(f"{view}: {doing}"))
                lines.say(doing)

        return ask_apply(settings, Kind.REBUILD, view, on_progress, on_wait, prove=prove)


class Lines:
    """What is said where there is no terminal: a line every ten seconds, the first one after that long."""

    def __init__(self, view: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._clock_s = clock_s
        self._said_s = clock_s()
        self.has_heard = False
        """Whether apply has answered yet."""

    def heard(self, answer: Answer) -> None:
        """Apply has said how far it is."""
        self.has_heard = True
        done = f", {answer.progress:.0%}" if answer.progress is not None else ""
        left = _left(answer)
        self.say(f"{answer.message or 'under way'}{done}{f', {left}' if left else ''}")

    def say(self, doing: str) -> None:
        """Unless something was said just now."""
        now_s = self._clock_s()
        if now_s - self._said_s < _LINE_EVERY_S or err.is_terminal:
            return
        self._said_s = now_s
        err.print(f"rebuilding {escape(self._view)}: {escape(doing)}", soft_wrap=True)


def _left(answer: Answer) -> str:
    return "" if answer.left_s is None else f"about {answer.left_s:,.0f} s left"
