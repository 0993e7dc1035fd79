"""Arithmetic: of numbers, and of days and moments.

In: operator nodes. Out: Spark expressions with Postgres's result types. Keeps true: both sides have one type, so that
Spark converts nothing by itself; what a result cannot hold raises, in both engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from jobs.declare.context import Context, Rule
from jobs.declare.dates import is_interval, of_days, plus_interval
from jobs.declare.literals import coerce
from jobs.declare.operators import REMEDIES
from jobs.declare.quotients import is_computed, is_exact, is_sure, product, quotient
from jobs.plan.types import BY_WIDTH, INT4, Family, Type, Typed, as_decimal, cast, decimal
from jobs.typemap import PRECISION_MAX

SPARK_KEEPS: Final = 6
_ARITHMETIC: Final[Mapping[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def arithmetic(context: Context, node: exp.Expr) -> Typed:
    """+, - and * of numbers, with Postgres's overflow errors; + and - of days and moments."""
    first, second, is_minus = node.args["this"], node.args["expression"], isinstance(node, exp.Sub)
    if not isinstance(node, exp.Mul) and is_interval(second):
        return plus_interval(context, node, context.translate(first), second, minus=is_minus)
    if isinstance(node, exp.Add) and is_interval(first):
        return plus_interval(context, node, context.translate(second), first)
    left, right = context.part(node), context.part(node, "expression")
    found = of_days(context, node, left, right)
    return found if found is not None else _calculated(context, node, left, right)


def _calculated(context: Context, node: exp.Expr, left: Typed, right: Typed) -> Typed:
    left, right = _numbers(context, node, left, right)
    operator = _ARITHMETIC[type(node)]
    if left.type.family is right.type.family is Family.INT:
        wide = BY_WIDTH[max(left.type.width, right.type.width)]
        return Typed(f"({cast(left, wide).sql} {operator} {cast(right, wide).sql})", wide)
    if is_computed(left.type) or is_computed(right.type):
        if operator == "*" and all(map(is_sure, (left, right))):
            return product(left, right)
        hint = "round it first: round(.., 2), or cast it to numeric(p,s)"
        raise context.refuse(node, f"{operator} of a quotient or an average is not supported in views", hint)
    left, right = as_decimal(left), as_decimal(right)
    result = _product(left.type, right.type) if operator == "*" else _sum(left.type, right.type)
    if result is None:
        hint = "cast one side to a smaller numeric(p,s) first"
        names = f"{left.type.name} {operator} {right.type.name}"
        raise context.refuse(node, f"the result of {names} may need more than {PRECISION_MAX} digits", hint)
    return Typed(f"({left.sql} {operator} {right.sql})", result)


def _sum(left: Type, right: Type) -> Type | None:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    return _held(precision, scale, fixed=_fixed(left, right))


def _product(left: Type, right: Type) -> Type | None:
    return _held(left.precision + right.precision + 1, left.scale + right.scale, fixed=_fixed(left, right))


def _held(precision: int, scale: int, *, fixed: bool) -> Type | None:
    """Of what may be too long Spark keeps six digits behind the point, and raises where those before it do not fit."""
    if precision > PRECISION_MAX and scale > SPARK_KEEPS:
        return None
    return decimal(min(PRECISION_MAX, precision), scale, fixed=fixed)


def _fixed(left: Type, right: Type) -> bool:
    return left.fixed and right.fixed


def division(context: Context, node: exp.Expr) -> Typed:
    """Integer / and %, which truncate towards zero in both; the digits of a numeric quotient depend on its value."""
    left, right = _numbers(context, node, context.part(node), context.part(node, "expression"))
    if not left.type.family is right.type.family is Family.INT:
        if isinstance(node, exp.Mod):
            raise context.refuse(node, "% of numerics is not supported in views", "cast both sides to bigint")
        return quotient(left, right)
    wide = BY_WIDTH[max(left.type.width, right.type.width)]
    if isinstance(node, exp.Mod):
        return Typed(f"({cast(left, wide).sql} % {cast(right, wide).sql})", wide)
    return Typed(f"CAST(({left.sql} div {right.sql}) AS {wide.spark})", wide)


def _numbers(context: Context, node: exp.Expr, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    left, right = coerce(context, node, left, right.type), coerce(context, node, right, left.type)
    for side in (left, right):
        require_number(context, node, side)
    return left, right


def require_number(context: Context, node: exp.Expr, typed: Typed) -> None:
    """Arithmetic is exact on integers and declared decimals alone."""
    if not is_exact(typed.type):
        hint = REMEDIES.get(typed.type.family, "supported: integers and numeric(p,s)")
        raise context.refuse(node, f"arithmetic on {typed.type.name} is not supported in views", hint)


def negative(context: Context, node: exp.Expr) -> Typed:
    """Unary minus."""
    found = context.part(node)
    require_number(context, node, found)
    if is_computed(found.type):
        return product(found, Typed("-1", INT4))
    return Typed(f"(- {found.sql})", found.type, digits=found.digits)


_BINARY: Final = frozenset({"this", "expression"})

RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    **{kind: Rule(arithmetic, _BINARY, operator) for kind, operator in _ARITHMETIC.items()},
    exp.Div: Rule(division, _BINARY | {"typed", "safe"}, "/"),
    exp.Mod: Rule(division, _BINARY, "%"),
    exp.Neg: Rule(negative, frozenset({"this"}), "-"),
}
