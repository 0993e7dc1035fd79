"""Every command by name. Imports happen inside, so that `--help` and small commands start at once."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc.cli.app import app
from cdc.settings import Settings


def _settings(context: typer.Context) -> Settings:
    from cdc.configuration import load_settings

    return load_settings(context.obj["config"])


def _logging(context: typer.Context, settings: Settings, process: str) -> None:
    from cdc.log import configure

    configure(verbose=context.obj["verbose"], pipeline=settings.pipeline, process=process)


@app.command()
def check(
    context: typer.Context,
    fix: Annotated[bool, typer.Option("--fix", help="Make roles, privileges and the publication as needed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Preflight: one line per finding, with its remedy. Exit 1 if something is critical."""
    from cdc.cli.checking import run_check

    raise typer.Exit(run_check(_settings(context), fix=fix, as_json=as_json))


@app.command()
def capture(context: typer.Context) -> None:
    """Read the database's log into Kafka: a snapshot first, then every change, until stopped."""
    from cdc.cli.capture_command import run_capture

    settings = _settings(context)
    _logging(context, settings, "capture")
    run_capture(settings)
