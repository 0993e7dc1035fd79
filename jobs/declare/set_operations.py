"""UNION, INTERSECT and EXCEPT, with and without ALL.

In: their nodes. Out: Blocks. Keeps true: both sides have one type in each column, as Postgres would choose it; rows are
compared only where equal values are one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from jobs.declare.aggregates import require_identical
from jobs.declare.conditionals import unified
from jobs.declare.limits import limit_of, limited, ordering
from jobs.declare.resolution import Around, Block, Resolution
from jobs.declare.rows import Rows, as_expr
from jobs.declare.scopes import Field, Scope
from jobs.declare.withs import with_names
from jobs.plan.nodes import Aggregate, Plan, Project, SetKind, SetOperation
from jobs.plan.types import Typed

_KNOWN: Final = frozenset({"this", "expression", "distinct", "order", "limit", "offset", "with_"})
_KINDS: Final = {
    (exp.Union, True): SetKind.UNION_ALL,
    (exp.Union, False): SetKind.UNION_ALL,
    (exp.Intersect, True): SetKind.INTERSECT,
    (exp.Intersect, False): SetKind.INTERSECT_ALL,
    (exp.Except, True): SetKind.EXCEPT,
    (exp.Except, False): SetKind.EXCEPT_ALL,
}


def set_block(resolution: Resolution, node: exp.SetOperation, around: Around) -> Block:
    """The rows of two queries put together."""
    word = type(node).__name__.upper()
    resolution.only(node, _KNOWN, word, "write SELECT .. UNION [ALL] SELECT ..")
    around = with_names(resolution, node, around)
    sides = [resolution.block(resolution, side, around) for side in (node.this, node.expression)]
    if len(sides[0].fields) != len(sides[1].fields):
        hint = "select as many columns on both sides"
        raise resolution.refuse(node, f"the sides of {word} have different numbers of columns", hint)
    is_distinct = bool(node.args.get("distinct"))
    found = _together(resolution, node, sides, _KINDS[type(node), is_distinct], is_distinct=is_distinct)
    cut = limit_of(resolution, node)
    if cut is None:
        return found
    rows = Rows(resolution.source, resolution.numbers, Scope(), found.plan, {})
    order = ordering(rows, node, found.fields, (), is_whole=False)
    return replace(found, plan=limited(resolution, found.plan, order, cut))


def _together(
    resolution: Resolution, node: exp.SetOperation, sides: Sequence[Block], kind: SetKind, *, is_distinct: bool
) -> Block:
    rows = Rows(resolution.source, resolution.numbers, Scope(), sides[0].plan, {})
    values: list[list[Typed]] = [[], []]
    fields = []
    for at, (left, right) in enumerate(zip(sides[0].fields, sides[1].fields, strict=True)):
        place = sides[0].nodes[at]
        pair = unified(rows.context, place, [_value(sides[0], left), _value(sides[1], right)])
        if is_distinct or kind is not SetKind.UNION_ALL:
            for typed in pair:
                require_identical(rows, place, typed, type(node).__name__.upper())
        for side, typed in zip(values, pair, strict=True):
            side.append(typed)
        column = rows.numbers.new(left.name or "column", pair[0].type)
        fields.append(Field(left.name, column, None, left.c_collated and right.c_collated))
    columns = tuple(each.attribute for each in fields)
    plans = [_as(rows, side, typed) for side, typed in zip(sides, values, strict=True)]
    plan: Plan = SetOperation(kind, plans[0], plans[1], columns)
    if kind is SetKind.UNION_ALL and is_distinct:
        plan = Aggregate(plan, columns, ())
    return Block(plan, tuple(fields), sides[0].nodes)


def _value(side: Block, field: Field) -> Typed:
    return side.literals.get(field.attribute, field.typed)


def _as(rows: Rows, side: Block, values: Sequence[Typed]) -> Plan:
    """A side whose columns have these values."""
    if all(value.sql == each.attribute.sql for value, each in zip(values, side.fields, strict=True)):
        return side.plan
    items = []
    for value, each in zip(values, side.fields, strict=True):
        reads = frozenset({each.attribute}) if each.attribute.sql in value.sql else frozenset()
        expr = as_expr(value, reads)
        items.append((expr.attribute or rows.numbers.new(each.name or "column", expr.type), expr))
    return Project(side.plan, tuple(items))
