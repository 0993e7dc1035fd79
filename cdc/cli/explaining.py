"""`afterimage explain`: how a view is kept up to date, and what it is made of."""

from __future__ import annotations

import json
from typing import Any

from rich.markup import escape
from rich.syntax import Syntax

from cdc.cli import explaining_queries as queries
from cdc.cli.screen import out
from cdc.cli.views import named_views
from cdc.errors import CdcError
from cdc.settings import Settings
from jobs.declarations import captured_tables, declarations
from jobs.declare.bodies import body_of
from jobs.view_files import difference
from sinks.spec import Kind, ViewSpec


def run_explain(settings: Settings, name: str, *, as_json: bool) -> int:
    """Show one view."""
    (spec,) = named_views(settings, [name])
    live = _live(settings, name)
    former = live if live is not None and live.fingerprint != spec.fingerprint else None
    if as_json:
        out.print_json(json.dumps({**_as_dict(spec), "former_sql": former.postgres_sql if former else None}))
        return 0
    if spec.kind is Kind.QUERY:
        _show_query(spec)
    else:
        _show_row_wise(spec)
    _show_sql(spec)
    if former is not None:
        out.print("  [yellow]its file has changed: its rows follow the former one until this one is loaded beside[/]")
        for line in difference(former.postgres_sql, spec.postgres_sql):
            out.print(f"    {escape(line)}", soft_wrap=True)
    elif live is not None:
        out.print("  [yellow]sinks of its file are still loaded beside; till then it is kept in these:[/]")
        _show_sinks(live)
    return 0


def _live(settings: Settings, name: str) -> ViewSpec | None:
    """What the view's rows follow, if that is not what its file says; nobody knows while its store is away."""
    try:
        found = declarations(settings, captured_tables(settings), lambda *_: None)
    except CdcError:
        return None
    return found.live.get(name) if name in found.coming else None


def _show_query(spec: ViewSpec) -> None:
    out.print(f"view [bold]{escape(spec.name)}[/]")
    out.print(f"  from     {escape(', '.join(spec.relations))}", soft_wrap=True)
    if (body := body_of(spec.name)) in spec.relations:
        out.print(
            f"  LIMIT    is cut from {body}, kept up to date by itself: afterimage explain {body}", soft_wrap=True
        )
    for line in queries.lines(spec):
        out.print(f"  {escape(line)}", soft_wrap=True)
    _show_sinks(spec)
    out.print("  computed in full when: the file or a table's columns change, too many keys are affected, on `rebuild`")


def _show_row_wise(spec: ViewSpec) -> None:
    mode = "mirror of a table" if spec.kind is Kind.MIRROR else "incremental, row by row"
    out.print(f"view [bold]{escape(spec.name)}[/]: {mode}")
    out.print(f"  from     {escape(spec.schema)}.{escape(spec.table)}", soft_wrap=True)
    out.print(f"  key      {escape(', '.join(spec.key))}   the images of {escape(', '.join(spec.key_source))}")
    _show_sinks(spec)
    out.print(
        f"  a change in {escape(spec.table)} -> its row is computed anew; a row that leaves the filter is deleted"
    )
    out.print("  loaded anew when: the file or the table's columns change, its store was lost, or on `rebuild`")


def _show_sinks(spec: ViewSpec) -> None:
    for sink in spec.sinks:
        options = "".join(f", {name}={value}" for name, value in sink.options.items())
        out.print(f"  sink     {sink.name}{escape(options)}", soft_wrap=True)
    if spec.file is not None:
        out.print(f"  file     {escape(spec.file)}", soft_wrap=True)


def _show_sql(spec: ViewSpec) -> None:
    out.print("  in Postgres:")
    out.print(Syntax(spec.postgres_sql.strip(), "sql", word_wrap=True, background_color="default"))
    if spec.kind is not Kind.MIRROR:
        out.print("  in Spark:")
        out.print(Syntax(_spark_sql(spec), "sql", word_wrap=True, background_color="default"))


def _spark_sql(spec: ViewSpec) -> str:
    if spec.kind is not Kind.QUERY:
        return spec.spark_sql.strip()
    return queries.spark_sql(spec)


def _as_dict(spec: ViewSpec) -> dict[str, Any]:
    about = {
        "view": spec.name,
        "key": list(spec.key),
        "columns": list(spec.columns),
        "sinks": [{"sink": sink.name, **sink.options} for sink in spec.sinks],
        "postgres_sql": spec.postgres_sql,
        "spark_sql": _spark_sql(spec),
        "file": spec.file,
    }
    if spec.kind is Kind.QUERY:
        return {**about, "relations": list(spec.relations), **queries.described(spec)}
    return {
        **about,
        "mode": "mirror" if spec.kind is Kind.MIRROR else "incremental",
        "table": f"{spec.schema}.{spec.table}",
        "key_source": list(spec.key_source),
    }
