"""The application: global options, and the one place where an error becomes a message, a remedy and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cdc.cli.screen import report_error
from cdc.errors import CdcError

app = typer.Typer(
    name="afterimage",
    help="Keeps copies of a Postgres database true, and proves it.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration; else afterimage.yml or config/afterimage.yml."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Options that every command takes."""
    context.obj = {"config": config, "verbose": verbose}


def main() -> None:
    """Entry point of the console script."""
    from cdc.cli import commands  # noqa: F401  registers every command with `app`

    try:
        app()
    except CdcError as error:
        report_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
