"""Aggregate functions whose result is the same in both engines, whatever order the rows come in.

In: their nodes, over the rows before GROUP BY. Out: Spark aggregates with Postgres's result types. Keeps true: a sum
that does not fit raises; what depends on the order of rows, or on the order of additions, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.calls import JSONB_AGG, is_document, nested, refused, written
from jobs.declare.listings import listed_documents, listed_texts, listed_values
from jobs.declare.literals import coerce, settle
from jobs.declare.operators import NUMBERS, REMEDIES, condition
from jobs.declare.rows import Rows, is_identical
from jobs.plan.types import BOOL, DIGITS, INT8, Family, Type, Typed, decimal
from jobs.typemap import PRECISION_MAX

ROW_DIGITS: Final = 10
"""Spark's sum has so many digits more than what it adds: enough for 10^10 rows."""
_EXTREMES: Final = NUMBERS | {Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ, Family.TEXT}
_SUPPORTED: Final = (
    "supported: count, sum, avg, min, max, bool_and, bool_or, every, string_agg, array_agg, json_agg, jsonb_agg"
)


def aggregate(rows: Rows, node: exp.Expr) -> Typed:
    """A whole aggregate call."""
    if isinstance(node, exp.Filter):
        where = f" FILTER (WHERE {condition(rows.context, node.args['expression'].this)})"
        if isinstance(node.this, exp.ArrayAgg):
            return listed_values(rows, node.this, where)
        if is_document(node.this):
            return listed_documents(rows, node.this, where)
        found = aggregate(rows, node.this)
        return Typed(f"{found.sql}{where}", found.type)
    if isinstance(node, exp.WithinGroup):
        raise _unsupported(rows, node.this)
    if any(id(each) not in rows.answers for each in nested(node)):
        raise refused(rows, node, "an aggregate within an aggregate", "aggregate in a derived table first")
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    how = _CALLS.get(type(node)) or _CALLS_BY_NAME.get(name)
    if how is None:
        raise _unsupported(rows, node)
    return how(rows, node)


def _unsupported(rows: Rows, node: exp.Expr) -> ConfigError:
    word = str(node.this).lower() if isinstance(node, exp.Anonymous) else written(rows, node)
    return refused(rows, node, f"the aggregate {word}", _SUPPORTED)


def argument(rows: Rows, node: exp.Expr) -> tuple[str, Typed]:
    """`DISTINCT ` or nothing, and what is aggregated."""
    inner = next(iter(node.expressions), None) if isinstance(node, exp.Anonymous) else node.this
    others = [part for part, value in node.args.items() if value and part not in ("this", "big_int", "expressions")]
    if others or inner is None or (isinstance(node, exp.Anonymous) and len(node.expressions) != 1):
        raise refused(rows, node, f"this form of {written(rows, node)}", "it takes one argument")
    if isinstance(inner, exp.Order):
        raise refused(
            rows, inner, f"ORDER BY in {written(rows, node)}", "leave it out: the result does not depend on it"
        )
    if not isinstance(inner, exp.Distinct):
        return "", settle(rows.context.translate(inner))
    if len(inner.expressions) != 1:
        raise refused(rows, node, "DISTINCT of several values", "concatenate them as texts")
    found = settle(rows.context.translate(inner.expressions[0]))
    require_identical(rows, inner, found, "DISTINCT")
    return "DISTINCT ", found


def require_identical(rows: Rows, node: exp.Expr, typed: Typed, what: str) -> None:
    """Equal values must be one value, or which of them is shown would depend on the order of rows."""
    if not is_identical(typed):
        hint = REMEDIES.get(
            typed.type.family, "cast it to a type with one form of each value, like numeric(12,2) or text"
        )
        raise refused(rows, node, f"{what} of {typed.type.name}", hint)


def _count(rows: Rows, node: exp.Expr) -> Typed:
    if isinstance(node.this, exp.Star):
        return Typed("count(1)", INT8)
    distinct, value = argument(rows, node)
    return Typed(f"count({distinct}{value.sql})", INT8)


def _sum(rows: Rows, node: exp.Expr) -> Typed:
    distinct, value = argument(rows, node)
    return summed(rows, node, value, distinct)


def summed(rows: Rows, node: exp.Expr, value: Typed, distinct: str = "") -> Typed:
    """sum() with Postgres's result type."""
    type_ = value.type
    if type_.family is Family.INT and type_.width < INT8.width:
        return Typed(f"sum({distinct}{value.sql})", INT8)
    if type_.family is Family.INT:
        # Postgres's is a numeric.
        return _decimal_sum(f"{distinct}CAST({value.sql} AS DECIMAL({DIGITS[64]},0))", decimal(DIGITS[64], 0))
    if type_.family is Family.DECIMAL:
        return _decimal_sum(f"{distinct}{value.sql}", type_)
    if type_.family is Family.FLOAT:
        hint = "the sum of floats depends on their order: make the column a numeric in Postgres, or sum when reading"
    else:
        hint = REMEDIES.get(type_.family, "supported: integers and numeric(p,s)")
    raise refused(rows, node, f"sum of {type_.name}", hint)


def _decimal_sum(argument_: str, type_: Type) -> Typed:
    wide = decimal(min(PRECISION_MAX, type_.precision + ROW_DIGITS), type_.scale, fixed=type_.fixed)
    return Typed(f"sum({argument_})", wide)


def _extreme(rows: Rows, node: exp.Expr) -> Typed:
    distinct, value = argument(rows, node)
    name = "min" if isinstance(node, exp.Min) else "max"
    require_ordered(rows, node, value, name)
    return Typed(f"{name}({distinct}{value.sql})", value.type, c_collated=value.c_collated)


def require_ordered(rows: Rows, node: exp.Expr, value: Typed, name: str) -> None:
    """min and max are sure where the order is, and where equal values are one value."""
    if value.type.family is Family.TEXT and not value.c_collated:
        hint = f'write {name}(column COLLATE "C")'
        raise refused(rows, node, f"{name} of text, whose order depends on the database's collation,", hint)
    if value.type.family not in _EXTREMES:
        hint = REMEDIES.get(value.type.family, 'supported: numbers, date, timestamp, timestamptz, text COLLATE "C"')
        raise refused(rows, node, f"{name} of {value.type.name}", hint)


def _truth(rows: Rows, node: exp.Expr) -> Typed:
    distinct, value = argument(rows, node)
    found = coerce(rows.context, node, value, BOOL)
    name = "bool_or" if isinstance(node, exp.LogicalOr) else "bool_and"
    if found.type.family is not Family.BOOL:
        raise refused(rows, node, f"{name} of {found.type.name}", "write a comparison, like column = 1")
    return Typed(f"{name}({distinct}{found.sql})", BOOL)


def is_average(node: exp.Expr) -> bool:
    """Whether a call is avg(), with FILTER or without."""
    return isinstance(node.this if isinstance(node, exp.Filter) else node, exp.Avg)


def average(rows: Rows, node: exp.Expr) -> tuple[Typed, Typed]:
    """The sum and the count of which an average is the quotient."""
    inner, suffix = node, ""
    if isinstance(node, exp.Filter):
        inner = node.this
        suffix = f" FILTER (WHERE {condition(rows.context, node.args['expression'].this)})"
    if any(id(each) not in rows.answers for each in nested(inner)):
        raise refused(rows, node, "an aggregate within an aggregate", "aggregate in a derived table first")
    distinct, value = argument(rows, inner)
    if value.type.family is Family.FLOAT:
        hint = "it depends on the order of rows: make the column a numeric in Postgres, or average when reading"
        raise refused(rows, node, f"avg of {value.type.name}", hint)
    total = summed(rows, inner, value, distinct)
    return replace(total, sql=total.sql + suffix), Typed(f"count({distinct}{value.sql}){suffix}", INT8)


def _average(rows: Rows, node: exp.Expr) -> Typed:
    raise refused(rows, node, "avg here", "compute it in a derived table")


def _unordered(rows: Rows, node: exp.Expr) -> Typed:
    hint = "its result depends on the order of rows: write min(..) or max(..)"
    raise refused(rows, node, written(rows, node), hint)


_CALLS: Final[Mapping[type[exp.Expr], Callable[[Rows, exp.Expr], Typed]]] = {
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Min: _extreme,
    exp.Max: _extreme,
    exp.LogicalAnd: _truth,
    exp.LogicalOr: _truth,
    exp.Avg: _average,
    exp.AnyValue: _unordered,
    exp.GroupConcat: listed_texts,
    exp.ArrayAgg: listed_values,
    exp.JSONArrayAgg: listed_documents,
}
_CALLS_BY_NAME: Final[Mapping[str, Callable[[Rows, exp.Expr], Typed]]] = {"every": _truth, JSONB_AGG: listed_documents}
WORDS: Final = (
    "count",
    "sum",
    "avg",
    "string_agg",
    "array_agg",
    "json_agg",
    "jsonb_agg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "every",
)
