"""Every command by name. Imports happen inside, so that `--help` and small commands start at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdc.cli.app import app
from cdc.cli.formats import Format
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
def snapshot(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="A captured table, as schema.table.")],
    where: Annotated[
        str | None, typer.Option("--where", help="Only these rows: an SQL condition, names with their schema.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Send a table's rows again, in chunks, while the stream goes on."""
    from cdc.cli.snapshotting import run_snapshot

    settings = _settings(context)
    _quiet_logging()
    run_snapshot(settings, table, where, wait=wait, as_json=as_json)


@app.command()
def recover(
    context: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Also where the slot is as it must be.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Take a new slot for one that was lost, and send what differs between source and topics. Repeating it is safe."""
    from cdc.cli.recovering import run_recover

    settings = _settings(context)
    _quiet_logging()
    run_recover(settings, force=force, as_json=as_json)


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


@app.command()
def rebuild(
    context: typer.Context,
    views: Annotated[
        list[str] | None, typer.Argument(help="Views or mirrors, e.g. open_orders or public.orders.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every view and mirror, one after the other.")] = False,
    prove: Annotated[bool, typer.Option("--prove", help="Prove it before it is shown.")] = False,
) -> None:
    """Rebuild a view from offset zero beside the live one, then swap in one step. Interrupting it harms nothing."""
    from cdc.cli.rebuilding import run_rebuild

    settings = _settings(context)
    _quiet_logging()
    raise typer.Exit(run_rebuild(settings, views or [], all_views=everything, prove=prove))


@app.command()
def drop(
    context: typer.Context,
    view: Annotated[str, typer.Argument(help="A view whose file is gone, or names a sink less; `status` names those.")],
) -> None:
    """Remove what sinks hold of a view that its file, or nothing, declares any more: table, index, entries, topic."""
    from cdc.cli.dropping import run_drop

    settings = _settings(context)
    _quiet_logging()
    run_drop(settings, view)


@app.command()
def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT over mirrors (public.orders) and views (open_orders).")],
    wait: Annotated[str | None, typer.Option("--wait", help="First wait until the tables contain this LSN.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 30.0,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to print the answer.")] = Format.TABLE,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="An LSN, or a time with its zone: all tables as they were then.")
    ] = None,
) -> None:
    """SQL over the derived Delta tables, all at one LSN, without starting Spark."""
    from cdc.cli.querying import run_query_command

    run_query_command(_settings(context), sql, wait=wait, timeout_s=timeout, form=form, as_of=as_of)


@app.command()
def prove(  # noqa: PLR0913  each is an option
    context: typer.Context,
    views: Annotated[list[str] | None, typer.Argument(help="Views to prove; all when none is named.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Mend the keys that differ, and prove again.")] = False,
    values: Annotated[bool, typer.Option("--values", help="Show what differs of the keys that are named.")] = False,
    keys: Annotated[int, typer.Option("--keys", min=1, help="Differing keys named of each view and sink.")] = 20,
    chunk_rows: Annotated[
        int | None, typer.Option("--chunk-rows", min=1, help="Rows in a chunk, else prove.chunk_rows.")
    ] = None,
    rows_per_s: Annotated[
        int | None, typer.Option("--rows-per-s", min=1, help="The rate over all chunks, else prove.rows_per_s.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Compare every view in every sink with Postgres, row by row, at one LSN. Exit 1 on any difference."""
    from cdc.cli.proving import Wanted, run_prove
    from cdc.cli.repairing import run_repair

    settings = _settings(context)
    _quiet_logging()
    run = run_repair if repair else run_prove
    raise typer.Exit(run(settings, views or [], Wanted(as_json, values, chunk_rows, rows_per_s, keys)))


@app.command()
def wait(
    context: typer.Context,
    lsn: Annotated[str, typer.Argument(help="From SQL after your commit: SELECT pg_current_wal_insert_lsn().")],
    views: Annotated[list[str] | None, typer.Argument(help="Views to wait for; all when none is named.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Read your own writes: return when the views contain everything before this position."""
    from cdc.cli.waiting import run_wait

    settings = _settings(context)
    _quiet_logging()
    raise typer.Exit(run_wait(settings, lsn, views or [], timeout_s=timeout, as_json=as_json))


@app.command()
def explain(
    context: typer.Context,
    view: Annotated[str, typer.Argument(help="A view or a mirror.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """How a view is kept up to date: its key, sinks, and both SQL texts."""
    from cdc.cli.explaining import run_explain

    raise typer.Exit(run_explain(_settings(context), view, as_json=as_json))


@app.command()
def demo() -> None:
    """The whole story on a sample shop: capture under load, kill, rebuild, query, prove. Exit 0 only if all held."""
    from cdc.demo.story import run_demo
    from cdc.resources import config_file

    _quiet_logging()
    raise typer.Exit(run_demo(config_file("demo.yml")))
