"""Views that make each row from one row of one table: mirrors, and row-wise SELECTs.

In: tables, and a view's text. Out: ViewSpecs. Keeps true: a view is either exactly what its SQL would answer in
Postgres, or refused before anything starts; its fingerprint changes whenever its rows could.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.errors import ConfigError
from cdc.names import delta_columns, path_name, quote_ident
from cdc.nearest import suggestion
from jobs.declare.context import UNKNOWN_TABLE, quote_column, span
from jobs.declare.fingerprint import fingerprint
from jobs.declare.header import check_row_wise, read_header
from jobs.declare.keys import KEY, view_key
from jobs.declare.parse import Select, parse_select
from jobs.declare.query import DeclaredQuery, view_relation
from jobs.declare.relations import Column, Tables
from jobs.declare.source import Source
from jobs.declare.translate import Translation, translate
from jobs.declare.view_name import check_name
from jobs.identifiers import identifier
from jobs.plan.types import printed
from jobs.tables import TableInfo
from sinks.spec import Concealed, Kind, NamedTable, SinkOptions, ViewSpec


def declare_view(name: str, source: Source, relations: Tables) -> ViewSpec:
    """The row-wise view of a text."""
    return declare_row_wise(name, source, relations).spec


def declare_row_wise(name: str, source: Source, relations: Tables) -> DeclaredQuery:
    """The row-wise view of a text, and what it is for the views that read it."""
    check_name(name, source, relations)
    select = parse_select(source)
    header = read_header(source, before=select.tokens[0].start)
    check_row_wise(source, header)
    table = _resolve(source, select, relations)
    translation = translate(source, select, table)
    key, key_source = view_key(source, header, table, translation.outputs)
    delta = dict(zip((output.name for output in translation.outputs), translation.columns, strict=True))
    spec = ViewSpec(
        name=name,
        kind=Kind.ROWWISE,
        schema=table.schema,
        table=table.table,
        key=tuple(delta[column] for column in key),
        key_source=_delta_names(table, key_source),
        columns=translation.columns,
        postgres_sql=translation.postgres.sql,
        named=translation.postgres.named,
        spark_sql=translation.spark_sql,
        sinks=header.sinks,
        fingerprint=_fingerprint(translation, key, table),
        file=source.name,
        concealed=_concealed(table, {delta[output.name]: output.source for output in translation.outputs}),
        stopped=table.stopped,
        reads=frozenset(translation.used) | frozenset(table.key),
        printed=printed((delta[output.name], output.typed.type) for output in translation.outputs),
    )
    columns = [
        Column(
            output.name,
            delta[output.name],
            output.typed.type,
            delta[output.name] not in spec.key,
            _rule(spec, delta[output.name]),
            output.typed.c_collated,
        )
        for output in translation.outputs
    ]
    return DeclaredQuery(spec, view_relation(spec, columns))


def _rule(spec: ViewSpec, column: str) -> str | None:
    return "the table's rule" if column in spec.concealed else None


def mirror_spec(table: TableInfo) -> ViewSpec:
    """The view that equals a table."""
    if not table.key:
        hint = f"ALTER TABLE {table.qualified} ADD PRIMARY KEY (..), or leave it out of source.tables"
        raise ConfigError(f"table {table.qualified} has no primary key", hint, code=KEY)
    names = [column.name for column in table.columns]
    columns = delta_columns(names)
    key = _delta_names(table, table.key)
    qualified = f"{quote_ident(table.schema)}.{quote_ident(table.table)}"
    postgres_sql = f"SELECT {', '.join(map(quote_ident, names))} FROM {qualified}"  # noqa: S608 - quoted
    named = NamedTable(table.schema, table.table, len(postgres_sql) - len(qualified))
    spark_sql = f"SELECT {', '.join(map(quote_column, columns))} FROM changes"  # noqa: S608 - quoted
    return ViewSpec(
        name=path_name(table.schema, table.table),
        kind=Kind.MIRROR,
        schema=table.schema,
        table=table.table,
        key=key,
        key_source=key,
        columns=columns,
        postgres_sql=postgres_sql,
        named=(named,),
        spark_sql=spark_sql,
        sinks=(SinkOptions("delta"),),
        fingerprint=fingerprint([postgres_sql, spark_sql, key, _types(table, names)]),
        concealed=_concealed(table, dict(zip(columns, names, strict=True))),
        stopped=table.stopped,
    )


def _resolve(source: Source, select: Select, relations: Tables) -> TableInfo:
    """The captured table that FROM names."""
    node = select.table
    start, length = span(node.this)
    if node.args.get("catalog"):
        hint = "write schema.table"
        raise source.error(start, "a view reads its own database", hint, code=UNKNOWN_TABLE, length=length)
    table, db = identifier(node.this), node.args.get("db")
    schemas = [identifier(db)] if db else sorted(schema for schema, name in relations if name == table)
    if len(schemas) > 1:
        hint = f"write one of {', '.join(f'{schema}.{table}' for schema in schemas)}"
        message = f"table {table} is captured in several schemas"
        raise source.error(start, message, hint, code=UNKNOWN_TABLE, length=length)
    found = relations.get((schemas[0], table)) if schemas else None
    if found is None:
        written = f"{schemas[0]}.{table}" if schemas else table
        known = [f"{schema}.{name}" if db else name for schema, name in relations]
        hint = suggestion(written, known, what="captured tables")
        message = f"table {written} is not captured"
        raise source.error(start, message, hint, code=UNKNOWN_TABLE, length=length)
    return found


def _delta_names(table: TableInfo, names: Sequence[str]) -> tuple[str, ...]:
    originals = [column.name for column in table.columns]
    delta = dict(zip(originals, delta_columns(originals), strict=True))
    return tuple(delta[name] for name in names)


def _fingerprint(translation: Translation, key: Sequence[str], table: TableInfo) -> str:
    # Not the sinks' options: each sink adds its own, so that changing one of them reloads that sink alone.
    used = sorted(translation.used | set(table.key))
    return fingerprint([translation.postgres.sql, translation.spark_sql, key, _types(table, used)])


def _concealed(table: TableInfo, sources: Mapping[str, str | None]) -> dict[str, Concealed]:
    """Of the view's columns, those that show a column under a rule."""
    under_rule = {column.name: column for column in table.columns if column.rule is not None}
    shown = {name: under_rule[source] for name, source in sources.items() if source in under_rule}
    return {name: Concealed(column.name, column.base_oid, column.type_mod) for name, column in shown.items()}


def _types(table: TableInfo, names: Sequence[str]) -> list[list[str | int]]:
    used = [column for column in table.columns if column.name in names]
    return [[column.name, column.type, column.base_oid, column.type_mod] for column in used]
