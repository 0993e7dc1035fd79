"""From a parsed SELECT to the two texts that a view runs: Postgres's and Spark's.

In: a Select and its table. Out: the outputs, the SQL for both, and the columns read. Keeps true: the Postgres text is
the user's own, token by token; only the table's name is qualified and `*` written out, so that both stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from cdc.names import delta_columns, quote_ident
from jobs.declare import casts, conditionals, functions, literals, operators, patterns
from jobs.declare.context import Context, Rule, Scope, ScopeColumn, quote_column
from jobs.declare.operators import condition
from jobs.declare.outputs import Output, is_star, outputs
from jobs.declare.parse import Select
from jobs.declare.source import Source
from jobs.identifiers import identifier
from jobs.plan.types import Typed, type_of
from jobs.tables import TableInfo


def _column(context: Context, node: exp.Expr) -> Typed:
    assert isinstance(node, exp.Column)
    return context.column(node)


RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Column: Rule(_column, frozenset({"this", "table", "db", "catalog"}), "a column"),
    **literals.RULES,
    **operators.RULES,
    **casts.RULES,
    **conditionals.RULES,
    **functions.RULES,
    **patterns.RULES,
}


@dataclass(frozen=True, slots=True)
class Translation:
    """What a SELECT says: `columns` are the outputs' Delta names, `used` the table's columns that it reads.

    `table_at` is where `postgres_sql` names the table.
    """

    outputs: tuple[Output, ...]
    columns: tuple[str, ...]
    postgres_sql: str
    table_at: int
    spark_sql: str
    used: frozenset[str]


def translate(source: Source, select: Select, table: TableInfo) -> Translation:
    """The view's SQL for both engines."""
    context = Context(source, _scope(select, table), RULES, functions.FUNCTIONS)
    found = outputs(context, select.outputs)
    columns = delta_columns(output.name for output in found)
    items = [f"{output.typed.sql} AS {quote_column(name)}" for output, name in zip(found, columns, strict=True)]
    where = f" WHERE {condition(context, select.where)}" if select.where is not None else ""
    postgres_sql, table_at = _postgres_sql(source, select, table)
    return Translation(
        outputs=found,
        columns=columns,
        postgres_sql=postgres_sql,
        table_at=table_at,
        spark_sql=f"SELECT {', '.join(items)} FROM changes{where}",  # noqa: S608 - quoted
        used=frozenset(context.used),
    )


def _scope(select: Select, table: TableInfo) -> Scope:
    alias = select.table.args.get("alias")
    name = identifier(alias.this) if alias is not None else table.table
    qualifiers: set[tuple[str, ...]] = {(name,)}
    if alias is None:
        qualifiers.add((table.schema, table.table))
    names = [column.name for column in table.columns]
    scoped = {
        column.name: ScopeColumn(delta, type_of(column), column.rule)
        for column, delta in zip(table.columns, delta_columns(names), strict=True)
    }
    return Scope(frozenset(qualifiers), table.qualified, scoped)


def _postgres_sql(source: Source, select: Select, table: TableInfo) -> tuple[str, int]:
    """The SQL, and where in it the table is named."""
    named = _named(select)
    changed = _changes(select, table, named)
    pieces: list[str] = []
    end, table_at = None, 0
    for at, token in enumerate(select.tokens):
        text = changed.get(at, source.text[token.start : token.end + 1])
        if text and end is not None and token.start > end + 1:
            pieces.append(" ")
        if at == named[0]:
            table_at = sum(map(len, pieces))
        pieces.append(text)
        end = token.end
    return "".join(pieces), table_at


def _named(select: Select) -> list[int]:
    """The tokens that name the table."""
    parts = [part for part in (select.table.args.get("db"), select.table.this) if part is not None]
    start, end = parts[0].meta["start"], parts[-1].meta["end"]
    return [at for at, token in enumerate(select.tokens) if start <= token.start <= end]


def _changes(select: Select, table: TableInfo, named: list[int]) -> dict[int, str]:
    """What is written instead of some of the tokens."""
    changed = dict.fromkeys(named, "")
    changed[named[0]] = f"{quote_ident(table.schema)}.{quote_ident(table.table)}"
    for first, last in _stars(select):
        changed.update(dict.fromkeys(range(first, last + 1), ""))
        changed[first] = ", ".join(quote_ident(column.name) for column in table.columns)
    return changed


def _stars(select: Select) -> list[tuple[int, int]]:
    """The tokens of each `*` or `name.*` in the select list."""
    if not any(map(is_star, select.outputs)):
        return []
    words, found = [token.text.upper() for token in select.tokens], []
    for at, word in enumerate(words):
        if word == "*" and words[at - 1] in ("SELECT", "ALL", ",", "."):
            first = at
            while words[first - 1] == ".":
                first -= 2
            found.append((first, at))
    return found
