"""`afterimage query`: SQL over the derived tables, all at one LSN, printed for people or programs."""

from __future__ import annotations

import sys

from rich.markup import escape

from cdc.cli.formats import Format
from cdc.cli.screen import err, out
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.query import parse_when, run_query


def run_query_command(
    settings: Settings, sql: str, *, wait: str | None, timeout_s: float, form: Format, as_of: str | None = None
) -> None:
    """Ask and print; where the answer stands goes to standard error."""
    from cdc.cli.positions import parse_position
    from jobs.query import render

    lsn = parse_position(wait) if wait is not None else None
    when = parse_when(as_of) if as_of is not None else None
    answer = run_query(settings, sql, wait_lsn=lsn, timeout_s=timeout_s, as_of=when)
    for name, count in answer.lacking.items():
        err.print(f"[yellow]! {escape(name)} lacks {count} rows: they are dead letters, see `afterimage status`[/]")
    if form is Format.TABLE:
        render.print_table(answer.table, out)
    else:
        sys.stdout.write(render.as_json(answer.table) if form is Format.JSON else render.as_csv(answer.table))
    if when is not None or form is Format.TABLE:
        err.print(f"[dim]{'as of' if when is not None else 'at'} {format_lsn(answer.cut.lsn)}[/]")
