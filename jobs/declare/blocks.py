"""One SELECT: FROM, WHERE, GROUP BY, HAVING, the select list, DISTINCT, ORDER BY .. LIMIT, in the order of meaning.

In: a Select node and what it stands in. Out: a Block. Keeps true: every part of the SELECT is looked at here or refused
by its name; each output is a column of the block's plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from jobs.declare.aggregates import require_identical
from jobs.declare.distinct_on import first_of_each
from jobs.declare.grouping import grouped, is_grouped
from jobs.declare.joins import conjuncts, from_clause
from jobs.declare.limits import limit_of, limited, order_nodes, ordering
from jobs.declare.literals import settle
from jobs.declare.nested import nested_rules
from jobs.declare.outputs import is_star, star_span
from jobs.declare.relations import Text
from jobs.declare.resolution import Around, Block, Resolution
from jobs.declare.rows import Rows, as_expr
from jobs.declare.scopes import Field, unknown
from jobs.declare.windows import add_windows
from jobs.declare.withs import with_names
from jobs.identifiers import identifier
from jobs.plan.nodes import Aggregate, Attribute, Expr, Filter, Join, Plan, Project
from jobs.plan.types import Typed

_KNOWN: Final = frozenset(
    {
        "with_",
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "distinct",
        "order",
        "limit",
        "offset",
        "windows",
    }
)
_FORM: Final = "a SELECT may have WITH, FROM, WHERE, GROUP BY, HAVING, DISTINCT, WINDOW, ORDER BY .. LIMIT"


@dataclass(frozen=True, slots=True)
class Selected:
    """One item of a select list."""

    name: str | None
    typed: Typed
    reads: frozenset[Attribute]
    node: exp.Expr


def select_block(resolution: Resolution, select: exp.Select, around: Around) -> Block:
    """A SELECT's rows."""
    resolution.only(select, _KNOWN, "SELECT", _FORM)
    if not select.args.get("from_"):
        raise resolution.refuse(select, "a SELECT without FROM is not supported in views", "name a table")
    around = with_names(resolution, select, around)
    rows = _filtered(resolution, select, around)
    items = _items(resolution, rows, select)
    having = select.args.get("having")
    nodes = [*items, *order_nodes(select), *([having.this] if having else [])]
    if is_grouped(select, nodes):
        rows = grouped(rows, select, items, nodes)
        if having:
            keep(rows, having.this)
    add_windows(resolution, rows, select, [*items, *order_nodes(select)])
    found = [_selected(rows, item) for item in items]
    return _shown(resolution, select, rows, found)


def _filtered(resolution: Resolution, select: exp.Select, around: Around) -> Rows:
    item = from_clause(resolution, select, around)
    nested = nested_rules(resolution, around.named)
    rows = Rows(resolution.source, resolution.numbers, item.scope, item.plan, nested, around.outer)
    if select.args.get("where"):
        keep(rows, select.args["where"].this)
    return rows


def keep(rows: Rows, node: exp.Expr) -> None:
    """Keep the rows for which a condition holds; what needs no nested query comes first."""
    parts = list(conjuncts(node))
    plain = [rows.passing(part) for part in parts if not part.find(exp.Query)]
    own = tuple(each for each in plain if each.reads <= set(rows.plan.columns))
    outer = tuple(each for each in plain if not each.reads <= set(rows.plan.columns))
    if own and isinstance(rows.plan, Join):
        rows.plan = Join(rows.plan.inputs, (*rows.plan.conditions, *own))
    elif own:
        rows.plan = Filter(rows.plan, own)
    if outer:
        rows.plan = Filter(rows.plan, outer)
    for part in parts:
        if part.find(exp.Query):
            condition = rows.passing(part)
            rows.plan = Filter(rows.plan, (condition,))


def _items(resolution: Resolution, rows: Rows, select: exp.Select) -> list[exp.Expr]:
    """The select list, with `*` written out."""
    found: list[exp.Expr] = []
    for node in select.expressions:
        if is_star(node):
            found += _star(resolution, rows, node)
        else:
            found.append(node)
    return found


def _star(resolution: Resolution, rows: Rows, node: exp.Expr) -> list[exp.Expr]:
    star = node if isinstance(node, exp.Star) else node.this
    if any(star.args.values()):
        raise resolution.refuse(node, "only a plain * is supported in views", "name the columns")
    fields = rows.scope.visible
    if isinstance(node, exp.Column):
        among = rows.scope.entry_fields(rows.context, node)
        if among is None:
            raise unknown(rows.context, node, [rows.scope])
        fields = among
    start, end = star_span(node)
    resolution.rewriting.write(start, end, Text(", ".join(each.written for each in fields)))
    return [_column(resolution, node, each, start, end) for each in fields]


def _column(resolution: Resolution, node: exp.Expr, field: Field, start: int, end: int) -> exp.Expr:
    """A column as if the user had written it where the `*` is."""
    if field.name is None:
        hint = "name it in the nested query: .. AS name"
        raise resolution.refuse(node, "* would hold a column without a name", hint)
    name = exp.to_identifier(field.name, quoted=True)
    name.meta.update(start=start, end=end)
    table = None if field.qualifier is None else exp.to_identifier(field.qualifier, quoted=True)
    return exp.Column(this=name, table=table)


def _selected(rows: Rows, node: exp.Expr) -> Selected:
    inner = node.this if isinstance(node, exp.Alias) else node
    typed, reads = rows.typed(inner)
    name = None
    if isinstance(node, exp.Alias):
        name = identifier(node.args["alias"])
    elif isinstance(inner, exp.Column):
        name = identifier(inner.this)
    return Selected(name, typed, reads, node)


def _shown(resolution: Resolution, select: exp.Select, rows: Rows, found: Sequence[Selected]) -> Block:
    """The rows with the outputs alone, in their order and number."""
    fields, literals, items = project(rows, found)
    distinct = select.args.get("distinct")
    nodes = tuple(each.node for each in found)
    if distinct and distinct.args.get("on"):
        return Block(_only(first_of_each(resolution, rows, select, fields, items), fields), fields, nodes, literals)
    order = ordering(rows, select, fields, items)
    plan: Plan = Project(rows.plan, (*items, *order.hidden))
    if distinct and order.hidden:
        raise resolution.refuse(select, "DISTINCT is ordered by its own columns", "select what ORDER BY names")
    if distinct:
        for each in found:
            require_identical(rows, each.node, settle(each.typed), "DISTINCT")
        plan = Aggregate(plan, tuple(each.attribute for each in fields), ())
    cut = limit_of(resolution, select)
    if cut is not None:
        plan = limited(resolution, plan, order, cut)
    return Block(_only(plan, fields), fields, nodes, literals)


def _only(plan: Plan, fields: Sequence[Field]) -> Plan:
    """The rows without the columns that only ordered them."""
    columns = tuple(each.attribute for each in fields)
    return plan if plan.columns == columns else Project(plan, tuple((column, Expr.of(column)) for column in columns))


def project(
    rows: Rows, found: Sequence[Selected]
) -> tuple[tuple[Field, ...], dict[Attribute, Typed], tuple[tuple[Attribute, Expr], ...]]:
    """The outputs as columns: an attribute that is selected as it is keeps its number, the first time."""
    fields: list[Field] = []
    literals: dict[Attribute, Typed] = {}
    items: list[tuple[Attribute, Expr]] = []
    for each in found:
        expr = as_expr(settle(each.typed), each.reads)
        taken = {column for column, _ in items}
        own = expr.attribute if expr.attribute in rows.plan.columns and expr.attribute not in taken else None
        column = own or rows.numbers.new(each.name or "column", expr.type)
        items.append((column, expr))
        fields.append(Field(each.name, column, None, each.typed.c_collated))
        if each.typed.null or each.typed.literal is not None:
            literals[column] = each.typed
    return tuple(fields), literals, tuple(items)
