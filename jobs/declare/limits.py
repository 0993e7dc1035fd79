"""ORDER BY .. LIMIT: the first rows of a query.

In: a query's ORDER BY, LIMIT and OFFSET. Out: a Limit over its rows. Keeps true: an order without a limit means nothing
to a set of rows, a limit without an order any rows: both are refused; an order that may be shared is told as a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from jobs.declare.ordering import direction, require_sure_order
from jobs.declare.resolution import Resolution
from jobs.declare.rows import Rows, as_expr
from jobs.declare.scopes import Field
from jobs.declare.uniqueness import facts
from jobs.identifiers import identifier
from jobs.plan.nodes import Attribute, Expr, Limit, Plan

_READER: Final = "a view is a set of rows: order them when reading, or add LIMIT"


@dataclass(frozen=True, slots=True)
class Cut:
    """LIMIT and OFFSET; `node` is where they stand."""

    count: int | None
    offset: int
    node: exp.Expr


@dataclass(frozen=True, slots=True)
class Order:
    """The texts of an ORDER BY, the columns that they name, and those of them that are not outputs."""

    texts: tuple[str, ...] = ()
    columns: tuple[Attribute, ...] = ()
    hidden: tuple[tuple[Attribute, Expr], ...] = ()


def order_nodes(query: exp.Expr) -> list[exp.Expr]:
    """The expressions of a query's ORDER BY."""
    return [each.this for each in _ordered(query)]


def _ordered(query: exp.Expr) -> list[exp.Ordered]:
    order = query.args.get("order")
    return list(order.expressions) if order else []


def limit_of(resolution: Resolution, query: exp.Expr) -> Cut | None:
    """How many rows a query keeps; None for all of them."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    order = query.args.get("order")
    if not limit and not offset:
        if order:
            raise resolution.refuse(order, "ORDER BY without LIMIT is not supported in views", _READER)
        return None
    at = limit or offset
    assert isinstance(at, exp.Expr)
    if not order:
        raise resolution.refuse(at, "LIMIT without ORDER BY keeps any rows", "write ORDER BY a unique key")
    return Cut(_count(resolution, limit), _number(resolution, offset.expression) if offset else 0, at)


def _count(resolution: Resolution, limit: exp.Expr | None) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
            raise resolution.refuse(limit, "WITH TIES is not supported in views", "filter by rank() in a derived table")
        return _number(resolution, limit.args.get("count") or exp.Literal.number(1))
    return _number(resolution, limit.expression)


def _number(resolution: Resolution, node: exp.Expr) -> int:
    if isinstance(node, exp.Literal) and not node.args.get("is_string") and str(node.this).isdigit():
        found = int(node.this)
        if found < 2**31:
            return found
    raise resolution.refuse(node, "LIMIT and OFFSET take plain numbers in views", "write LIMIT 10")


def ordering(
    rows: Rows,
    query: exp.Expr,
    fields: Sequence[Field],
    items: Sequence[tuple[Attribute, Expr]],
    *,
    is_whole: bool = True,
    after: int = 0,
) -> Order:
    """A query's ORDER BY: positions and names of outputs, and with `is_whole` expressions over its rows.

    Its first items are left out, `after` of them.
    """
    texts, columns, hidden = [], [], list[tuple[Attribute, Expr]]()
    for node in _ordered(query)[after:]:
        field = output_named(rows, node.this, fields)
        if field is None and not is_whole:
            raise rows.context.refuse(node.this, "this ORDER BY names no column of the result", "name an output column")
        if field is not None:
            require_sure_order(rows, node.this, field.typed)
            column = field.attribute
        else:
            column = _hidden(rows, node.this, items, hidden)
        texts.append(f"{column.sql} {direction(node)}")
        columns.append(column)
    return Order(tuple(texts), tuple(columns), tuple(hidden))


def output_named(rows: Rows, node: exp.Expr, fields: Sequence[Field]) -> Field | None:
    """The output that an item of ORDER BY means by its position or name."""
    if isinstance(node, exp.Literal) and not node.args.get("is_string"):
        at = int(node.this) if str(node.this).isdigit() else 0
        if not 1 <= at <= len(fields):
            raise rows.context.refuse(node, f"ORDER BY position {node.this} is not in the select list", "name a column")
        return fields[at - 1]
    if not isinstance(node, exp.Column) or node.args.get("table"):
        return None
    name = identifier(node.this)
    return next((each for each in fields if each.name == name), None)


def _hidden(
    rows: Rows, node: exp.Expr, items: Sequence[tuple[Attribute, Expr]], hidden: list[tuple[Attribute, Expr]]
) -> Attribute:
    typed, reads = rows.typed(node)
    expr = as_expr(require_sure_order(rows, node, typed), reads)
    for column, known in (*items, *hidden):
        if known.sql == expr.sql:
            return column
    column = expr.attribute if expr.attribute in rows.plan.columns else rows.numbers.new("order", expr.type)
    assert column is not None
    hidden.append((column, expr))
    return column


def limited(resolution: Resolution, plan: Plan, order: Order, cut: Cut) -> Plan:
    """The first rows."""
    if facts(plan).key_within(order.columns) is None:
        resolution.warnings.append("ORDER BY .. LIMIT: cannot prove that the order is unique, so which rows is open")
    return Limit(plan, order.texts, cut.count, cut.offset)
