"""Comparison, logic and text operators.

In: operator nodes. Out: Spark expressions with Postgres's result types. Keeps true: both sides have one type, so that
Spark converts nothing by itself; what depends on a collation must say COLLATE "C"; decimals need 38 digits at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from jobs.declare.context import Context, Rule
from jobs.declare.dates import as_moments
from jobs.declare.literals import coerce, settle
from jobs.declare.quotients import as_pair, is_computed, is_exact
from jobs.plan.types import (
    BOOL,
    FLOAT8,
    TEXT,
    Family,
    Typed,
    as_decimal,
    cast,
    common_decimal,
)

NUMBERS: Final = frozenset({Family.INT, Family.DECIMAL})
ORDERED: Final = frozenset({Family.BOOL, Family.UUID, Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ})
REMEDIES: Final[Mapping[Family, str]] = {
    Family.CHAR: "cast the column to text: column::text",
    Family.NUMERIC: "give the column a precision: column::numeric(12,2)",
    Family.JSON: "cast it to text: column::text",
    Family.OTHER: "cast the column to text: column::text",
}
_REAL_BITS: Final = 32
_COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def aligned(context: Context, node: exp.Expr, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Two values as Postgres would compare them: of one type that holds both."""
    left, right = coerce(context, node, left, right.type), coerce(context, node, right, left.type)
    left, right = settle(left), settle(right)
    families = {left.type.family, right.type.family}
    if Family.FLOAT in families and families <= NUMBERS | {Family.FLOAT}:
        return (left, right) if left.type == right.type else (cast(left, FLOAT8), cast(right, FLOAT8))
    if families <= NUMBERS and families != {Family.INT}:
        return _as_decimals(left, right)
    if is_exact(left.type) and is_exact(right.type) and families != {Family.INT}:
        return as_pair(left), as_pair(right)
    moments = as_moments(context, node, left, right)
    if moments is not None:
        return moments
    if Family.CHAR in families and families <= {Family.CHAR, Family.TEXT}:
        # Beside a varchar it is the varchar that becomes a character(n).
        is_padded = left.type.padded or right.type.padded
        return _without_padding(left, is_padded=is_padded), _without_padding(right, is_padded=is_padded)
    if len(families) > 1 or families & set(REMEDIES):
        raise _incomparable(context, node, left, right)
    return left, right


def _as_decimals(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    left, right = as_decimal(left), as_decimal(right)
    common = common_decimal(left.type, right.type)
    if common is None:
        return as_pair(left), as_pair(right)
    return cast(left, common), cast(right, common)


def _without_padding(typed: Typed, *, is_padded: bool) -> Typed:
    """Blanks at the end of a character(n) do not count, and go where it becomes a text."""
    return Typed(f"rtrim({typed.sql})", TEXT) if is_padded or typed.type.family is Family.CHAR else typed


def _incomparable(context: Context, node: exp.Expr, left: Typed, right: Typed) -> Exception:
    remedy = REMEDIES.get(left.type.family) or REMEDIES.get(right.type.family) or "cast one side to the other's type"
    names = f"{left.type.name} and {right.type.name}"
    return context.refuse(node, f"{names} together here are not supported in views", remedy)


def compare(context: Context, node: exp.Expr, left: Typed, operator: str, right: Typed) -> str:
    """One comparison; the order of texts is only known under COLLATE "C"."""
    left, right = aligned(context, node, left, right)
    family = left.type.family
    if operator in ("=", "<>", "<=>") or family in ORDERED | NUMBERS | {Family.FLOAT} or is_computed(left.type):
        return f"({left.sql} {operator} {right.sql})"
    if family is Family.TEXT and (left.c_collated or right.c_collated):
        return f"({left.sql} {operator} {right.sql})"
    if family is Family.TEXT:
        hint = 'write: column COLLATE "C" < ..'
        raise context.refuse(node, "the order of texts depends on the database's collation", hint)
    raise context.refuse(node, f"the order of {left.type.name} is not supported in views", "compare for equality")


def comparison(context: Context, node: exp.Expr) -> Typed:
    """=, <>, <, <=, >, >=."""
    left, right = context.part(node), context.part(node, "expression")
    return Typed(compare(context, node, left, _COMPARISONS[type(node)], right), BOOL)


def distinct_from(context: Context, node: exp.Expr) -> Typed:
    """IS [NOT] DISTINCT FROM."""
    same = compare(context, node, context.part(node), "<=>", context.part(node, "expression"))
    return Typed(same if isinstance(node, exp.NullSafeEQ) else f"(NOT {same})", BOOL)


def between(context: Context, node: exp.Expr) -> Typed:
    """BETWEEN low AND high."""
    value, low, high = (context.part(node, part) for part in ("this", "low", "high"))
    return Typed(f"({compare(context, node, value, '>=', low)} AND {compare(context, node, value, '<=', high)})", BOOL)


def in_list(context: Context, node: exp.Expr) -> Typed:
    """IN (list): one IN where all items have one type, else the OR that it stands for."""
    value, items = context.part(node), node.args.get("expressions") or []
    if not items:
        raise context.refuse(node, "IN without a list of values is not supported in views", "write IN (1, 2)")
    read = [context.translate(item) for item in items]
    if len(read) > 1:
        _require_one_type(context, node, value, read)
    pairs = [aligned(context, item, value, each) for item, each in zip(items, read, strict=True)]
    if len({left.sql for left, _ in pairs}) == 1:
        return Typed(f"({pairs[0][0].sql} IN ({', '.join(right.sql for _, right in pairs)}))", BOOL)
    return Typed("(" + " OR ".join(f"({left.sql} = {right.sql})" for left, right in pairs) + ")", BOOL)


def _require_one_type(context: Context, node: exp.Expr, value: Typed, items: Sequence[Typed]) -> None:
    """Several constants are made one type with the value, which for these is another than each alone would have."""
    is_real = value.type.family is Family.FLOAT and value.type.width == _REAL_BITS
    if is_real and any(each.type.family in NUMBERS for each in items):
        hint = "write column = 1 OR column = 2"
        raise context.refuse(node, "real IN several numbers is not supported in views", hint)
    if value.type.family is Family.CHAR and any(each.type.family is Family.TEXT for each in items):
        raise context.refuse(node, "character(n) IN texts is not supported in views", "write column::text IN ..")


def condition(context: Context, node: exp.Expr) -> str:
    """A truth value."""
    found = coerce(context, node, context.translate(node), BOOL)
    if found.type.family is not Family.BOOL:
        hint = "write a comparison, like column = 1"
        raise context.refuse(node, f"a condition must be boolean, this is {found.type.name}", hint)
    return found.sql


def connected(context: Context, node: exp.Expr) -> Typed:
    """AND, OR."""
    word = "AND" if isinstance(node, exp.And) else "OR"
    left, right = condition(context, node.args["this"]), condition(context, node.args["expression"])
    return Typed(f"({left} {word} {right})", BOOL)


def negated(context: Context, node: exp.Expr) -> Typed:
    """NOT."""
    return Typed(f"(NOT {condition(context, node.args['this'])})", BOOL)


def paren(context: Context, node: exp.Expr) -> Typed:
    """(..): what is translated has its own."""
    return context.part(node)


def is_test(context: Context, node: exp.Expr) -> Typed:
    """IS [NOT] NULL, TRUE, FALSE."""
    what = node.args["expression"]
    word = "IS NOT" if node.args.get("negate") else "IS"
    if isinstance(what, exp.Null):
        return Typed(f"({settle(context.part(node)).sql} {word} NULL)", BOOL)
    if isinstance(what, exp.Boolean):
        return Typed(f"({condition(context, node.args['this'])} {word} {'TRUE' if what.this else 'FALSE'})", BOOL)
    raise context.refuse(node, "this IS test is not supported in views", "supported: IS [NOT] NULL, TRUE, FALSE")


def concatenation(context: Context, node: exp.Expr) -> Typed:
    """text || text; NULL if either is."""
    left, right = text(context, node, "this"), text(context, node, "expression")
    return Typed(f"({left.sql} || {right.sql})", TEXT, c_collated=left.c_collated or right.c_collated)


def text(context: Context, node: exp.Expr, part: str) -> Typed:
    """An argument that must be text."""
    return as_text(context, node.args[part], context.part(node, part))


def as_text(context: Context, node: exp.Expr, typed: Typed) -> Typed:
    """A value that must be text."""
    found = coerce(context, node, typed, TEXT)
    if found.type.family is not Family.TEXT:
        hint = "cast it: expression::text"
        raise context.refuse(node, f"text is expected here, this is {found.type.name}", hint)
    return found


def collated(context: Context, node: exp.Expr) -> Typed:
    """COLLATE "C", under which the order is that of the bytes and only ASCII letters have two cases."""
    if not (isinstance(node.expression, exp.Identifier) and node.expression.this == "C"):
        raise context.refuse(node, 'only the collation "C" is supported in views', 'write COLLATE "C"')
    found = text(context, node, "this")
    return Typed(found.sql, found.type, c_collated=True)


_BINARY: Final = frozenset({"this", "expression"})

RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    **{kind: Rule(comparison, _BINARY, operator) for kind, operator in _COMPARISONS.items()},
    exp.NullSafeEQ: Rule(distinct_from, _BINARY, "IS NOT DISTINCT FROM"),
    exp.NullSafeNEQ: Rule(distinct_from, _BINARY, "IS DISTINCT FROM"),
    exp.Between: Rule(between, frozenset({"this", "low", "high"}), "BETWEEN"),
    exp.In: Rule(in_list, frozenset({"this", "expressions"}), "IN"),
    exp.And: Rule(connected, _BINARY, "AND"),
    exp.Or: Rule(connected, _BINARY, "OR"),
    exp.Not: Rule(negated, frozenset({"this"}), "NOT"),
    exp.Paren: Rule(paren, frozenset({"this"}), "( )"),
    exp.Is: Rule(is_test, _BINARY | {"negate"}, "IS"),
    exp.DPipe: Rule(concatenation, _BINARY | {"safe"}, "||"),
    exp.Collate: Rule(collated, _BINARY, "COLLATE"),
}
