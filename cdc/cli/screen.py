"""What people see: consoles and errors. Results go to standard output, everything else to standard error."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from cdc.errors import CdcError

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def report_error(error: CdcError) -> None:
    """One message, its remedy, and the code to look up in the runbook."""
    err.print(f"[bold red]error[/] [dim]{error.code}[/] {escape(error.message)}", soft_wrap=True)
    if error.hint:
        err.print(f"  [bold]remedy[/] {escape(error.hint)}", soft_wrap=True)
    err.print(f"  [dim]more: docs/RUNBOOK.md#{error.code.lower()}[/]", soft_wrap=True)
