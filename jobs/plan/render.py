"""A plan as Spark SQL.

In: a plan, and what to call the relation of each Scan. Out: one SELECT whose columns are called as the attributes.
Keeps true: every derived table names each of its columns once, so nothing needs to be qualified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Expr,
    Filter,
    Join,
    Keyed,
    Limit,
    Lookup,
    LookupKind,
    OuterJoin,
    Plan,
    Project,
    Scan,
    SetOperation,
    Unnest,
    Window,
)

NameOf = Callable[[str], str]
ONE = "1 AS one"


def render(node: Plan, name_of: NameOf) -> str:
    """The plan's rows."""
    return _RENDERED[type(node)](node, name_of)


def table(sql: str) -> str:
    """A SELECT as a table in FROM. It needs a name: without one, Spark takes a WHERE behind it for its name."""
    return f"({sql}) t"


def derived(node: Plan, name_of: NameOf) -> str:
    """The plan as a table in FROM."""
    return table(render(node, name_of))


def aliased(sql: str, column: Attribute) -> str:
    """An item of a select list."""
    return sql if sql == column.sql else f"{sql} AS {column.sql}"


def listed(items: Iterable[str]) -> str:
    """A select list; of nothing, where only the rows count."""
    return ", ".join(items) or ONE


def names(columns: Iterable[Attribute]) -> str:
    """A select list of columns, in an order of its own."""
    return listed(column.sql for column in sorted(columns, key=lambda column: column.id))


def conjunction(conditions: Iterable[Expr]) -> str:
    """All of them."""
    return " AND ".join(f"({each.sql})" for each in conditions) or "TRUE"


def where(conditions: Iterable[Expr]) -> str:
    """` WHERE ..`, or nothing."""
    found = tuple(conditions)
    return f" WHERE {conjunction(found)}" if found else ""


def keyed(rows: str, columns: Iterable[Attribute], keys: str, pairs: Iterable[tuple[Attribute, str]]) -> str:
    """The rows of a SELECT whose columns have the values of some row of `keys`; NULL equals NULL."""
    same = " AND ".join(f"r.{column.sql} <=> k.{key}" for column, key in pairs) or "TRUE"
    shown = listed(f"r.{column.sql}" for column in columns)
    return f"SELECT {shown} FROM ({rows}) r LEFT SEMI JOIN {keys} k ON {same}"


def _scan(node: Scan, name_of: NameOf) -> str:
    pairs = zip(node.sources, node.columns, strict=True)
    items = listed(f"{quoted(source)} AS {column.sql}" for source, column in pairs)
    return f"SELECT {items} FROM {name_of(node.relation)}"


def _filter(node: Filter, name_of: NameOf) -> str:
    return f"SELECT * FROM {derived(node.input, name_of)}{where(node.conditions)}"


def _project(node: Project, name_of: NameOf) -> str:
    items = listed(aliased(expr.sql, column) for column, expr in node.items)
    return f"SELECT {items} FROM {derived(node.input, name_of)}"


def _join(node: Join, name_of: NameOf) -> str:
    tables = ", ".join(derived(each, name_of) for each in node.inputs)
    return f"SELECT * FROM {tables}{where(node.conditions)}"


def _outer_join(node: OuterJoin, name_of: NameOf) -> str:
    how = "FULL" if node.full else "LEFT"
    left, right = derived(node.left, name_of), derived(node.right, name_of)
    return f"SELECT * FROM {left} {how} JOIN {right} ON {conjunction(node.conditions)}"


def _window(node: Window, name_of: NameOf) -> str:
    calls = "".join(f", {aliased(call.expr.sql, call.column)}" for call in node.calls)
    return f"SELECT *{calls} FROM {derived(node.input, name_of)}"


def _unnest(node: Unnest, name_of: NameOf) -> str:
    return f"SELECT *, explode({node.array.sql}) AS {node.column.sql} FROM {derived(node.input, name_of)}"


def _aggregate(node: Aggregate, name_of: NameOf) -> str:
    groups = ", ".join(column.sql for column in node.groups)
    calls = [aliased(expr.sql, column) for column, expr in node.calls]
    items = listed([*(column.sql for column in node.groups), *calls])
    by = f" GROUP BY {groups}" if groups else ""
    distinct = "DISTINCT " if groups and not calls else ""
    if distinct:
        return f"SELECT DISTINCT {items} FROM {derived(node.input, name_of)}"
    return f"SELECT {items} FROM {derived(node.input, name_of)}{by}"


def _lookup(node: Lookup, name_of: NameOf) -> str:
    return f"SELECT *, {answer(node, name_of)} AS {node.column.sql} FROM {derived(node.input, name_of)}"


def answer(node: Lookup, name_of: NameOf) -> str:
    """What the nested query says to a row."""
    query = f"({render(node.query, name_of)})"
    match node.kind:
        case LookupKind.EXISTS:
            return f"EXISTS {query}"
        case LookupKind.IN:
            return among(node, name_of)
        case LookupKind.SCALAR:
            return query


def among(node: Lookup, name_of: NameOf) -> str:
    """IN as EXISTS: beside a row, Spark's own IN is false where it should be NULL."""
    table_ = derived(node.query, name_of)
    pairs = list(zip(node.arguments, node.query.columns, strict=True))
    same = " AND ".join(f"({argument.sql} = {column.sql})" for argument, column in pairs)
    found = f"EXISTS (SELECT {ONE} FROM {table_} WHERE {same})"
    if node.strict:
        return found
    unknown = f"EXISTS (SELECT {ONE} FROM {table_} WHERE ({same}) IS NULL)"
    if len(pairs) == 1:
        ((argument, column),) = pairs
        # The same, without comparing each with each.
        of_null = f"EXISTS (SELECT {ONE} FROM {table_} WHERE {column.sql} IS NULL)"
        unknown = f"{of_null} OR (({argument.sql}) IS NULL AND EXISTS (SELECT {ONE} FROM {table_}))"
    return f"(CASE WHEN {found} THEN TRUE WHEN {unknown} THEN NULL ELSE FALSE END)"


def _set_operation(node: SetOperation, name_of: NameOf) -> str:
    sides = []
    for side in (node.left, node.right):
        pairs = zip(side.columns, node.columns, strict=True)
        items = listed(aliased(column.sql, out) for column, out in pairs)
        sides.append(f"SELECT {items} FROM {derived(side, name_of)}")
    return f"{sides[0]} {node.kind.value} {sides[1]}"


def _limit(node: Limit, name_of: NameOf) -> str:
    order = f" ORDER BY {', '.join(node.order)}" if node.order else ""
    count = f" LIMIT {node.count}" if node.count is not None else ""
    offset = f" OFFSET {node.offset}" if node.offset else ""
    return f"SELECT * FROM {derived(node.input, name_of)}{order}{count}{offset}"


def _keyed(node: Keyed, name_of: NameOf) -> str:
    return keyed(render(node.input, name_of), node.columns, node.keys, node.pairs)


_RENDERED: Final[Mapping[type, Callable[[Any, NameOf], str]]] = {
    Scan: _scan,
    Filter: _filter,
    Project: _project,
    Join: _join,
    OuterJoin: _outer_join,
    Aggregate: _aggregate,
    Window: _window,
    Lookup: _lookup,
    Unnest: _unnest,
    SetOperation: _set_operation,
    Limit: _limit,
    Keyed: _keyed,
}


def quoted(name: str) -> str:
    """A Delta column's name."""
    return "`" + name.replace("`", "``") + "`"
