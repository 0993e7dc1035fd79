"""`afterimage drop`: what sinks hold of views whose file is gone, or names them no more, removed by apply or here."""

from __future__ import annotations

from rich.markup import escape

from cdc.cli.asking import ask_apply
from cdc.cli.screen import err
from cdc.errors import ConfigError
from cdc.settings import Settings
from jobs.control import Kind
from jobs.control.proved import kept_records
from jobs.declarations import captured_tables, declared
from jobs.dropping import refusal
from jobs.ledger import Ledger
from jobs.left_behind import left_behind


def run_drop(settings: Settings, name: str) -> None:
    """Drop one view."""
    specs = declared(settings, captured_tables(settings), lambda *_: None)
    ledger = Ledger(settings.delta_root, settings.delta.storage_options).read()
    why = refusal(settings, name, specs, left_behind(kept_records(settings), ledger, specs))
    if why is not None:
        raise ConfigError(why, "only what nothing declares any more is dropped", code="VIEW_DECLARED")
    answer = ask_apply(settings, Kind.DROP, name)
    err.print(f"[green]dropped[/] {escape(name)}: {escape(answer.message or '')}", soft_wrap=True)
