"""`afterimage drop`: what every sink holds of a view whose file is gone, removed by the running apply or here."""

from __future__ import annotations

from rich.markup import escape

from cdc.cli.asking import ask_apply
from cdc.cli.screen import err
from cdc.errors import ConfigError
from cdc.settings import Settings
from jobs.control import Kind
from jobs.declarations import captured_tables, declared
from jobs.dropping import refusal


def run_drop(settings: Settings, name: str) -> None:
    """Drop one view."""
    why = refusal(settings, name, declared(settings, captured_tables(settings), lambda *_: None))
    if why is not None:
        raise ConfigError(why, "only what nothing declares any more is dropped", code="VIEW_DECLARED")
    answer = ask_apply(settings, Kind.DROP, name)
    err.print(f"[green]dropped[/] {escape(name)}: {escape(answer.message or '')}", soft_wrap=True)
