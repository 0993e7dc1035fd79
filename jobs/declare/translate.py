"""From a parsed SELECT to the two texts that a view runs: Postgres's and Spark's.

In: a Select and its table. Out: the outputs, the SQL for both, and the columns read. Keeps true: the Postgres text is
the user's own, token by token; only the table's name is qualified and `*` written out, so that both stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from cdc.names import delta_columns, quote_ident
from jobs.declare import arithmetic, casts, conditionals, dates, functions, literals, operators, patterns, regexes
from jobs.declare.context import Context, Rule, quote_column
from jobs.declare.operators import condition
from jobs.declare.outputs import Output, is_star, outputs, star_span
from jobs.declare.parse import Select
from jobs.declare.postgres_text import Rewriting
from jobs.declare.relations import Text
from jobs.declare.row import Row, RowColumn
from jobs.declare.source import Source
from jobs.identifiers import identifier
from jobs.plan.types import type_of
from jobs.tables import TableInfo
from sinks.spec import NamedTable

RULES: Mapping[type[exp.Expr], Rule] = {
    **literals.RULES,
    **operators.RULES,
    **arithmetic.RULES,
    **casts.RULES,
    **conditionals.RULES,
    **functions.RULES,
    **patterns.RULES,
    **dates.RULES,
    **regexes.RULES,
}

COLUMN_PARTS: Final = frozenset({"this", "table", "db", "catalog"})


@dataclass(frozen=True, slots=True)
class Translation:
    """What a SELECT says: `columns` are the outputs' Delta names, `used` the table's columns that it reads."""

    outputs: tuple[Output, ...]
    columns: tuple[str, ...]
    postgres: Text
    spark_sql: str
    used: frozenset[str]


def translate(source: Source, select: Select, table: TableInfo) -> Translation:
    """The view's SQL for both engines."""
    row = _row(select, table)
    rules = {**RULES, exp.Column: Rule(row.column, COLUMN_PARTS, "a column")}
    context = Context(source, rules, functions.FUNCTIONS)
    found = outputs(context, row, select.outputs)
    columns = delta_columns(output.name for output in found)
    items = [f"{output.typed.sql} AS {quote_column(name)}" for output, name in zip(found, columns, strict=True)]
    where = f" WHERE {condition(context, select.where)}" if select.where is not None else ""
    return Translation(
        outputs=found,
        columns=columns,
        postgres=_postgres_text(source, select, table),
        spark_sql=f"SELECT {', '.join(items)} FROM changes{where}",  # noqa: S608 - quoted
        used=frozenset(row.used),
    )


def _row(select: Select, table: TableInfo) -> Row:
    alias = select.table.args.get("alias")
    name = identifier(alias.this) if alias is not None else table.table
    qualifiers: set[tuple[str, ...]] = {(name,)}
    if alias is None:
        qualifiers.add((table.schema, table.table))
    names = [column.name for column in table.columns]
    scoped = {
        column.name: RowColumn(delta, type_of(column), column.rule)
        for column, delta in zip(table.columns, delta_columns(names), strict=True)
    }
    return Row(frozenset(qualifiers), table.qualified, scoped)


def _postgres_text(source: Source, select: Select, table: TableInfo) -> Text:
    """The SQL, and where in it the table is named."""
    rewriting = Rewriting(source, select.tokens)
    parts = [part for part in (select.table.args.get("db"), select.table.this) if part is not None]
    name = f"{quote_ident(table.schema)}.{quote_ident(table.table)}"
    text = Text(name, (NamedTable(table.schema, table.table, 0),))
    rewriting.write(parts[0].meta["start"], parts[-1].meta["end"], text)
    for node in filter(is_star, select.outputs):
        columns = ", ".join(quote_ident(column.name) for column in table.columns)
        rewriting.write(*star_span(node), Text(columns))
    return rewriting.text()
