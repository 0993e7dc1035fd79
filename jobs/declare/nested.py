"""Nested queries in expressions: EXISTS, IN, = ANY, <> ALL, and a query's one value.

In: their nodes. Out: a column of the rows, from a Lookup beside them. Keeps true: a nested query reads the query around
it only in conditions where Spark computes it as Postgres does; anywhere else it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from jobs.declare.operators import aligned
from jobs.declare.resolution import Around, Block, Named, Resolution
from jobs.declare.rows import Rows, as_expr
from jobs.plan.nodes import Aggregate, Attribute, Filter, Join, Limit, Lookup, LookupKind, OuterJoin, Plan, Project
from jobs.plan.types import BOOL, Typed
from jobs.plan.walk import inputs, outer_reads, own_expressions, walk

Translate = Callable[[Rows, exp.Expr], Typed]
_PLACES: Final = "compare the outer column in the nested query's own WHERE, and with nothing above it but GROUP BY"
_QUANTIFIED: Final = "write EXISTS (SELECT .. WHERE ..), or compare with (SELECT max(..) ..)"


def nested_rules(resolution: Resolution, named: Mapping[str, Named]) -> dict[type[exp.Expr], Translate]:
    """How the nodes that hold queries are translated, where these names of WITH are known."""

    def block(rows: Rows, node: exp.Expr) -> Block:
        found = resolution.block(resolution, node, Around(rows, named))
        _check_correlation(rows, node, found.plan)
        return found

    def exists(rows: Rows, node: exp.Expr) -> Typed:
        query = block(rows, node.this).plan
        column = rows.numbers.new("exists", BOOL, nullable=False)
        is_strict = rows.conjunct is node
        return _answered(rows, Lookup(rows.plan, column, LookupKind.EXISTS, query, strict=is_strict))

    def among(rows: Rows, node: exp.Expr) -> Typed:
        if not node.args.get("query"):
            return rows.translated_plainly(node)
        return _in(rows, node, node.this, block(rows, node.args["query"]))

    def quantified(rows: Rows, node: exp.Expr) -> Typed:
        left, right = node.this, node.expression
        is_any = isinstance(node, exp.EQ) and isinstance(right, exp.Any)
        is_all = isinstance(node, exp.NEQ) and isinstance(right, exp.All)
        if isinstance(left, exp.Query) or not isinstance(right, (exp.Any, exp.All)):
            return rows.translated_plainly(node)
        if not isinstance(right.this, exp.Query) or not (is_any or is_all):
            raise rows.context.refuse(node, "this comparison with ANY or ALL is not supported in views", _QUANTIFIED)
        found = _in(rows, node, left, block(rows, right.this), is_plain=is_any)
        return found if is_any else Typed(f"(NOT {found.sql})", BOOL)

    def scalar(rows: Rows, node: exp.Expr) -> Typed:
        found = block(rows, node)
        if len(found.fields) != 1:
            raise rows.context.refuse(node, "a nested query here must have one column", "select one column")
        value = found.fields[0]
        column = rows.numbers.new(value.name or "value", value.attribute.type)
        typed = _answered(rows, Lookup(rows.plan, column, LookupKind.SCALAR, found.plan))
        return Typed(typed.sql, typed.type, c_collated=value.c_collated)

    comparisons = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
    return {exp.Exists: exists, exp.In: among, exp.Subquery: scalar, **dict.fromkeys(comparisons, quantified)}


def _in(rows: Rows, node: exp.Expr, left: exp.Expr, found: Block, *, is_plain: bool = True) -> Typed:
    sides = left.expressions if isinstance(left, exp.Tuple) else [left]
    if len(sides) != len(found.fields):
        message = f"{len(sides)} values are compared with {len(found.fields)} columns"
        raise rows.context.refuse(node, message, "select as many columns as stand on the left")
    arguments, items = [], []
    for side, each in zip(sides, found.fields, strict=True):
        typed, reads = rows.typed(side)
        mine, other = aligned(rows.context, node, typed, each.typed)
        arguments.append(as_expr(mine, reads))
        expr = as_expr(other, frozenset({each.attribute}))
        items.append((expr.attribute or rows.numbers.new(each.name or "value", expr.type), expr))
    query = found.plan
    if any(expr.attribute is None for _, expr in items):
        query = Project(query, tuple(items))
    is_strict = is_plain and rows.conjunct is node
    column = rows.numbers.new("in", BOOL)
    return _answered(rows, Lookup(rows.plan, column, LookupKind.IN, query, tuple(arguments), is_strict))


def _answered(rows: Rows, lookup: Lookup) -> Typed:
    """The answer's column beside the rows."""
    rows.plan = lookup
    rows.read({lookup.column})
    return Typed(lookup.column.sql, lookup.column.type)


def _check_correlation(rows: Rows, node: exp.Expr, plan: Plan) -> None:
    outer = outer_reads(plan)
    if not outer <= set(rows.plan.columns):
        hint = "join the tables in the nested query, so that it reads only the query around it"
        raise rows.context.refuse(node, "a nested query that reads a query further out is not supported in views", hint)
    elsewhere = any(
        expr.reads & outer for each in walk(plan) if not isinstance(each, Filter) for expr in own_expressions(each)
    )
    if elsewhere or not _reachable(plan, outer):
        raise rows.context.refuse(node, "a nested query cannot read an outer column there in views", _PLACES)


def _reachable(plan: Plan, outer: frozenset[Attribute]) -> bool:
    """Whether Spark can take the conditions on outer columns out of the nested query."""
    if not outer_reads(plan) & outer:
        return True
    if isinstance(plan, OuterJoin):
        return not plan.full and not outer_reads(plan.right) & outer and _reachable(plan.left, outer)
    if isinstance(plan, Lookup):
        return not outer_reads(plan.query) & outer and _reachable(plan.input, outer)
    if isinstance(plan, (Filter, Project, Join, Aggregate, Limit)):
        return all(_reachable(each, outer) for each in inputs(plan))
    return False
