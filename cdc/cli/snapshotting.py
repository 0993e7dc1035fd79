"""`afterimage snapshot`: asks the running capture to read a table again, and shows how far it is.

In: a table and perhaps a condition, checked against the source first. Out: a request that survives every restart, a bar
with the time that is left, the answer. Keeps true: the condition is only ever run read-only, as the `read` role.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import psycopg
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cdc.catalog import load_relations
from cdc.changes import Relation
from cdc.cli.screen import err, out
from cdc.errors import ConfigError, OperatorError
from cdc.names import quote_ident
from cdc.nearest import suggestion
from cdc.postgres import connect
from cdc.progress_log import ProgressLog
from cdc.settings import Settings
from cdc.sqlstate import translated
from cdc.table_patterns import parse, written
from snapshot.requests import RequestLog, SnapshotRequest, State, publish


def run_snapshot(settings: Settings, table: str, where: str | None, *, wait: bool, as_json: bool) -> None:
    """Ask; with `wait` until it is done."""
    request = _checked(settings, table, where)
    log = RequestLog(settings)
    try:
        publish(settings, request)
        if wait:
            request = _awaited(settings, log, request)
    finally:
        log.close()
    if as_json:
        body = {"id": request.id, "table": f"{request.schema}.{request.table}", "state": request.state.value}
        out.print_json(json.dumps({**body, "rows": request.rows, "message": request.message}))
    elif request.state is State.REQUESTED:
        out.print(f"asked for: {escape(table)}, about {request.estimated_rows:,} rows")
        err.print("Capture reads it beside the stream; look at it with [bold]afterimage status --watch[/]")
    elif request.state is State.DONE:
        out.print(f"read: {escape(table)}, {request.rows:,} rows sent")
    if request.state is State.FAILED:
        raise OperatorError(
            f"{table} could not be read: {request.message}",
            "see the log of capture, mend it and ask again",
            code="SNAPSHOT_FAILED",
        )


def _checked(settings: Settings, table: str, where: str | None) -> SnapshotRequest:
    source = settings.source
    with connect(source, source.read, application="afterimage snapshot") as connection:
        relations = load_relations(connection, source.tables, source.exclude)
        relation = _named([relation for relation in relations if relation.key], table)
        rows = _estimated(connection, relation, where)
    return SnapshotRequest(
        secrets.token_hex(8), relation.schema, relation.name, where, rows, time.time_ns() // 1_000_000
    )


def _estimated(connection: psycopg.Connection[Any], relation: Relation, where: str | None) -> int:
    name = f"{quote_ident(relation.schema)}.{quote_ident(relation.name)}"
    condition = f" WHERE ({where}\n)" if where is not None else ""
    query = f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {name}{condition}"  # noqa: S608  the user's own condition
    with translated():
        connection.execute("BEGIN READ ONLY")
        try:
            row = connection.execute(query.encode()).fetchone()
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            if where is None or isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise
            # Of data errors the kind alone: their messages may quote values.
            quotes = isinstance(error, psycopg.DataError)
            reason = type(error).__name__ if quotes else error.diag.message_primary
            raise ConfigError(
                f"--where is no condition on {relation.qualified}: {reason}",
                "write what stands behind WHERE; functions and types of one's own with their schema",
                code="BAD_CONDITION",
            ) from error
    assert row is not None
    return int(row[0][0]["Plan"]["Plan Rows"])


def _named(relations: list[Relation], table: str) -> Relation:
    pattern = parse(table)
    found = [relation for relation in relations if pattern.matches(relation.schema, relation.name)]
    if len(found) != 1:
        names = [written(relation.schema, relation.name) for relation in relations]
        raise ConfigError(
            f"{table} names {len(found)} captured tables, not one",
            suggestion(table, names, what="tables"),
            code="UNKNOWN_TABLE",
        )
    return found[0]


def _awaited(settings: Settings, log: RequestLog, request: SnapshotRequest) -> SnapshotRequest:
    progress = ProgressLog(settings.kafka, settings.pipeline)
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as bar:
            task = bar.add_task("waiting for capture", total=None)
            while True:
                newest = progress.newest(0.1)
                backfills = newest.backfills if newest is not None else ()
                for backfill in (each for each in backfills if each.id == request.id):
                    total = max(backfill.rows, backfill.estimated_rows)
                    bar.update(task, description="reading", completed=backfill.rows, total=total)
                for answer in log.newest(0.1):
                    if answer.id == request.id and answer.state is not State.REQUESTED:
                        return answer
    finally:
        progress.close()
