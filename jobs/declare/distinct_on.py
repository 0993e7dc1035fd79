"""DISTINCT ON: of the rows that agree in some expressions, the first in order; a row_number() in disguise.

In: a SELECT with DISTINCT ON, its outputs. Out: the rows that it keeps. Keeps true: without an order that says which
row is the first it is refused; the order of the expressions themselves means nothing, so any type may be among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from jobs.declare.aggregates import require_identical
from jobs.declare.facts import Facts
from jobs.declare.limits import Order, order_nodes, ordering, output_named
from jobs.declare.literals import settle
from jobs.declare.resolution import Resolution
from jobs.declare.rows import Rows, as_expr
from jobs.declare.scopes import Field
from jobs.declare.uniqueness import facts
from jobs.plan.nodes import Attribute, Expr, Filter, Plan, Project, Window, WindowCall
from jobs.plan.types import BOOL, INT8, Typed

Items = Sequence[tuple[Attribute, Expr]]


def first_of_each(
    resolution: Resolution, rows: Rows, select: exp.Select, fields: Sequence[Field], items: Items
) -> Plan:
    """The rows that DISTINCT ON keeps, with the outputs among their columns."""
    on = select.args["distinct"].args["on"]
    wanted = {expr.sql: expr for expr in (_meant(rows, node, fields, items) for node in on.expressions)}
    led = [_meant(rows, node, fields, items).sql for node in order_nodes(select)[: len(wanted)]]
    order = ordering(rows, select, fields, items, after=len(wanted))
    if set(led) != set(wanted) or not order.texts:
        hint = "write ORDER BY the same expressions, then what makes a row the first"
        raise resolution.refuse(on, "DISTINCT ON must be the beginning of ORDER BY, not all of it", hint)
    if select.args.get("limit") or select.args.get("offset"):
        raise resolution.refuse(on, "DISTINCT ON with LIMIT is not supported in views", "limit in a query around it")
    for expr in wanted.values():
        require_identical(rows, on, Typed("", expr.type), "DISTINCT ON")
    known = {expr.sql: column for column, expr in (*items, *order.hidden)}
    more = [(rows.numbers.new("on", expr.type), expr) for sql, expr in wanted.items() if sql not in known]
    columns = frozenset({*(known[sql] for sql in wanted if sql in known), *(column for column, _ in more)})
    plan = Project(rows.plan, (*items, *order.hidden, *more))
    _warn(resolution, facts(plan), columns, order)
    return _numbered(rows, plan, columns, order)


def _meant(rows: Rows, node: exp.Expr, fields: Sequence[Field], items: Items) -> Expr:
    field = output_named(rows, node, fields)
    if field is not None:
        return next(expr for column, expr in items if column == field.attribute)
    typed, reads = rows.typed(node)
    return as_expr(settle(typed), reads)


def _warn(resolution: Resolution, known: Facts, columns: frozenset[Attribute], order: Order) -> None:
    if known.key_within((*columns, *order.columns)) is None:
        resolution.warnings.append("DISTINCT ON: cannot prove that ORDER BY is unique, so the first row is open")


def _numbered(rows: Rows, plan: Plan, columns: frozenset[Attribute], order: Order) -> Plan:
    number = rows.numbers.new("row_number", INT8)
    partition = ", ".join(sorted(column.sql for column in columns))
    sql = f"CAST(row_number() OVER (PARTITION BY {partition} ORDER BY {', '.join(order.texts)}) AS BIGINT)"
    call = WindowCall(number, Expr(sql, INT8, columns | set(order.columns)), columns)
    return Filter(Window(plan, (call,)), (Expr(f"({number.sql} = 1)", BOOL, frozenset({number})),))
