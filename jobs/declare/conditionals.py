"""CASE, COALESCE, NULLIF, GREATEST and LEAST.

In: nodes with several alternatives. Out: one Spark expression of one type that holds them all. Keeps true: where
alternatives print differently (decimals of different scale) the result says so, and cannot leave the view unfixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from jobs.declare.context import Context, Rule
from jobs.declare.literals import coerce, settle
from jobs.declare.operators import NUMBERS, compare, condition
from jobs.declare.quotients import COMPUTED, is_computed, text
from jobs.plan.types import BY_WIDTH, UNKNOWN, Family, Type, Typed, as_decimal, cast, common_decimal


def unified(context: Context, node: exp.Expr, alternatives: Sequence[Typed]) -> list[Typed]:
    """The alternatives, all of one type that holds each."""
    if any(is_computed(each.type) for each in alternatives):
        alternatives = [_computed(each) for each in alternatives]
    elif any(each.type.family is Family.DECIMAL for each in alternatives):
        alternatives = [as_decimal(each) for each in alternatives]
    typed = [each for each in alternatives if each.type.family is not Family.UNKNOWN]
    common = typed[0].type if typed else UNKNOWN
    for each in typed[1:]:
        common = _common(context, node, common, each.type)
    read = [coerce(context, node, each, common) for each in alternatives]
    for each in read:
        common = _common(context, node, common, each.type) if typed else each.type
    return [settle(each) if not typed else cast(each, common) for each in read]


def _computed(typed: Typed) -> Typed:
    """A number beside a quotient: as the text that Postgres prints."""
    is_sure = typed.type.family is Family.INT or (typed.type.family is Family.DECIMAL and typed.type.fixed)
    return Typed(text(typed), COMPUTED) if is_sure else typed


def _common(context: Context, node: exp.Expr, left: Type, right: Type) -> Type:
    if left == right:
        return left
    families = {left.family, right.family}
    if families == {Family.INT}:
        return BY_WIDTH[max(left.width, right.width)]
    found = common_decimal(left, right) if families == {Family.DECIMAL} else None
    if found is None:
        hint = "cast the alternatives to one type"
        raise context.refuse(node, f"alternatives of the types {left.name} and {right.name} are not supported", hint)
    return found


def case(context: Context, node: exp.Expr) -> Typed:
    """CASE [value] WHEN .. THEN .. ELSE .. END."""
    value = context.part(node) if node.args.get("this") else None
    branches = node.args["ifs"]
    conditions = [_when(context, branch, value) for branch in branches]
    results = [context.part(branch, "true") for branch in branches]
    if node.args.get("default"):
        results.append(context.part(node, "default"))
    results = unified(context, node, results)
    whens = " ".join(f"WHEN {when} THEN {then.sql}" for when, then in zip(conditions, results, strict=False))
    default = f" ELSE {results[-1].sql}" if node.args.get("default") else ""
    return Typed(f"(CASE {whens}{default} END)", results[0].type)


def _when(context: Context, branch: exp.Expr, value: Typed | None) -> str:
    if value is None:
        return condition(context, branch.args["this"])
    return compare(context, branch.args["this"], value, "=", context.part(branch))


def coalesce(context: Context, node: exp.Expr) -> Typed:
    """The first that is not NULL."""
    return _call(context, node, "coalesce")


def extreme(context: Context, node: exp.Expr) -> Typed:
    """GREATEST and LEAST skip NULLs in both; only where the order is sure."""
    found = _call(context, node, "greatest" if isinstance(node, exp.Greatest) else "least")
    if found.type.family not in NUMBERS | {Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ}:
        hint = "supported: integers, numeric(p,s), date, timestamp, timestamptz"
        raise context.refuse(node, f"the order of {found.type.name} is not supported here in views", hint)
    return found


def _call(context: Context, node: exp.Expr, function: str) -> Typed:
    parts = [node.args["this"], *node.args.get("expressions", [])]
    found = unified(context, node, [context.translate(part) for part in parts])
    if len(found) == 1:
        return found[0]
    return Typed(f"{function}({', '.join(each.sql for each in found)})", found[0].type)


def nullif(context: Context, node: exp.Expr) -> Typed:
    """NULL where both are equal; of the first one's type."""
    left, right = context.part(node), context.part(node, "expression")
    left = settle(coerce(context, node, left, right.type))
    first, second = left.type.family, settle(coerce(context, node, right, left.type)).type.family
    if (first, second) in _WIDENED:
        message = f"NULLIF of {left.type.name} and {right.type.name} is not supported in views"
        raise context.refuse(node, message, "cast the first one to the other's type")
    same = compare(context, node, left, "=", right)
    return Typed(f"(CASE WHEN {same} THEN NULL ELSE {left.sql} END)", left.type)


_NUMERIC: Final = (Family.DECIMAL, Family.NUMERIC)
_WIDENED: Final = frozenset(
    {
        *((Family.INT, other) for other in (*_NUMERIC, Family.FLOAT)),
        *((one, Family.FLOAT) for one in _NUMERIC),
        (Family.CHAR, Family.TEXT),
        (Family.TEXT, Family.CHAR),
    }
)
"""Where NULLIF answers with the first value as another type than its own."""

_SEVERAL: Final = frozenset({"this", "expressions", "ignore_nulls"})

RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Case: Rule(case, frozenset({"this", "ifs", "default"}), "CASE"),
    exp.Coalesce: Rule(coalesce, _SEVERAL, "coalesce()"),
    exp.Nullif: Rule(nullif, frozenset({"this", "expression"}), "nullif()"),
    exp.Greatest: Rule(extreme, _SEVERAL, "greatest()"),
    exp.Least: Rule(extreme, _SEVERAL, "least()"),
}
