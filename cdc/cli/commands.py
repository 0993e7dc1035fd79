"""Every command by name. Imports happen inside, so that `--help` and small commands start at once."""

from __future__ import annotations

from pathlib import Path
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


def _config(context: typer.Context) -> Path:
    from cdc.configuration import find_config

    return find_config(context.obj["config"])


def _quiet_logging() -> None:
    """Commands that talk to a person say what happened themselves."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


@app.command()
def up(context: typer.Context) -> None:
    """Start the embedded servers, capture and apply, and leave them running. Twice is harmless."""
    from cdc.cli.bringing_up import bring_up
    from cdc.cli.screen import err

    _quiet_logging()
    bring_up(_config(context), err)
    err.print("Look at it with [bold]make status[/], ask with [bold]make query SQL='select ...'[/], stop: make down")


@app.command()
def down(context: typer.Context) -> None:
    """Stop apply, capture and the embedded servers; no process is left. Data stays."""
    from cdc.cli.bringing_up import bring_down
    from cdc.cli.screen import err

    _quiet_logging()
    bring_down(_config(context), err)


@app.command()
def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it.")] = False,
) -> None:
    """Where everything stands: the source, capture, each view in each sink, and how far behind they are."""
    from cdc.cli.services import services
    from cdc.cli.status import run_status

    settings = _settings(context)
    _quiet_logging()
    background = services(settings, _config(context))
    raise typer.Exit(run_status(settings, background, as_json=as_json, watch=watch))


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


@app.command()
def apply(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Stop when caught up.")] = False,
    master: Annotated[str | None, typer.Option("--master", help="The Spark master, else apply.master.")] = None,
) -> None:
    """Bring every view to the log's newest position, batch by batch, until stopped."""
    from cdc.cli.applying import run_apply

    settings = _settings(context)
    _logging(context, settings, "apply")
    run_apply(settings, once=once, master=master)
