"""What a query can read: captured tables, and the views that were declared before it.

In: table descriptions and declared views. Out: relations with Delta columns, and what Postgres's text says instead of
their names. Keeps true: Postgres is asked for a view by that view's own SQL, since it does not know views of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from cdc.changes import Trouble
from cdc.names import delta_columns, path_name, quote_ident
from cdc.nearest import suggestion
from jobs.declare.context import UNKNOWN_TABLE, span
from jobs.declare.source import Source
from jobs.identifiers import identifier
from jobs.plan.types import Type, type_of
from jobs.tables import TableInfo
from sinks.spec import NamedTable

Tables = Mapping[tuple[str, str], TableInfo]
KEY: Final = "VIEW_KEY"


@dataclass(frozen=True, slots=True)
class Column:
    """A column by both its names."""

    name: str
    delta: str
    type: Type
    nullable: bool = True
    rule: str | None = None
    c_collated: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """SQL for Postgres, and where in it tables are named."""

    sql: str
    named: tuple[NamedTable, ...] = ()


@dataclass(frozen=True, slots=True)
class Relation:
    """`name` is its Delta folder's; `key` are Delta columns. `text` stands for it in FROM; `schema` is a table's."""

    name: str
    word: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    text: Text
    schema: str | None = None
    stopped: Trouble | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Relations:
    """All that FROM may name."""

    tables: Tables
    views: Mapping[str, Relation] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    """The views that there are files for."""

    def find(self, source: Source, node: exp.Table) -> Relation:
        """What a table node names."""
        if node.args.get("catalog"):
            raise _unknown(source, node, "a view reads its own database", "write schema.table")
        name, db = identifier(node.this), node.args.get("db")
        if db is None and name in self.views:
            return self.views[name]
        if db is None and name in self.declared:
            raise _unknown(source, node, f"the view {name} is itself refused", "correct it first")
        schemas = [identifier(db)] if db else sorted(schema for schema, table in self.tables if table == name)
        if len(schemas) > 1:
            hint = f"write one of {', '.join(f'{schema}.{name}' for schema in schemas)}"
            raise _unknown(source, node, f"table {name} is captured in several schemas", hint)
        found = self.tables.get((schemas[0], name)) if schemas else None
        if found is None:
            written = f"{schemas[0]}.{name}" if schemas else name
            known = [f"{schema}.{table}" if db else table for schema, table in self.tables]
            known += [] if db else self.views
            hint = suggestion(written, known, what="captured tables and views")
            raise _unknown(source, node, f"table {written} is not captured", hint)
        return table_relation(source, node, found)


def table_relation(source: Source, node: exp.Expr, table: TableInfo) -> Relation:
    """A captured table."""
    if not table.key:
        start, length = span(node)
        hint = f"give it one: ALTER TABLE {table.qualified} ADD PRIMARY KEY (..)"
        raise source.error(start, f"table {table.qualified} has no primary key", hint, code=KEY, length=length)
    deltas = delta_columns(column.name for column in table.columns)
    columns = tuple(
        Column(column.name, delta, type_of(column), column.name not in table.key, column.rule)
        for column, delta in zip(table.columns, deltas, strict=True)
    )
    return Relation(
        name=path_name(table.schema, table.table),
        word=table.table,
        columns=columns,
        key=tuple(column.delta for column in columns if column.name in table.key),
        text=Text(
            f"{quote_ident(table.schema)}.{quote_ident(table.table)}", (NamedTable(table.schema, table.table, 0),)
        ),
        schema=table.schema,
        stopped=table.stopped,
    )


def _unknown(source: Source, node: exp.Table, message: str, hint: str) -> Exception:
    start, length = span(node.this)
    return source.error(start, message, hint, code=UNKNOWN_TABLE, length=length)
