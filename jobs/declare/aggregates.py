"""Aggregate functions whose result is the same in both engines, whatever order the rows come in.

In: their nodes, over the rows before GROUP BY. Out: Spark aggregates with Postgres's result types. Keeps true: a sum
that does not fit raises; what depends on the order of rows, or on the order of additions, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.arrays import array_element
from jobs.declare.documents import json_text
from jobs.declare.literals import coerce, settle, string
from jobs.declare.operators import NUMBERS, REMEDIES, as_text, condition
from jobs.declare.ordering import direction, require_sure_order
from jobs.declare.rows import Rows, as_expr, is_identical
from jobs.declare.uniqueness import facts
from jobs.plan.types import BOOL, DIGITS, INT8, JSON, JSONB, TEXT, Family, Type, Typed, decimal
from jobs.typemap import PRECISION_MAX

ROW_DIGITS: Final = 10
"""Spark's sum has so many digits more than what it adds: enough for 10^10 rows."""
_EXTREMES: Final = NUMBERS | {Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ, Family.TEXT}
_JSONB: Final = "jsonb_agg"
_NAMED: Final = frozenset({"every", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "xmlagg"})
_WRITTEN: Final[Mapping[type[exp.Expr], str]] = {
    exp.GroupConcat: "string_agg",
    exp.JSONArrayAgg: "json_agg",
    exp.JSONObjectAgg: "json_object_agg",
}
_SUPPORTED: Final = (
    "supported: count, sum, avg, min, max, bool_and, bool_or, every, string_agg, array_agg, json_agg, jsonb_agg"
)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is a whole aggregate call, with FILTER and the like."""
    if isinstance(node, (exp.Filter, exp.WithinGroup, exp.JSONArrayAgg, exp.JSONObjectAgg, exp.AggFunc)):
        return True
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in _NAMED


def aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregate calls of an expression that belong to its own query."""
    if isinstance(node, exp.Window):
        # Its function is none; what it is given may be one.
        for child in _below(node.this.this if isinstance(node.this, (exp.IgnoreNulls, exp.Filter)) else node.this):
            yield from aggregates(child)
        for part in ("partition_by", "order"):
            for child in _listed(node.args.get(part)):
                yield from aggregates(child)
    elif isinstance(node, exp.Query):
        return
    elif is_aggregate(node):
        yield node
    else:
        for child in _below(node):
            yield from aggregates(child)


def _below(node: exp.Expr) -> Iterator[exp.Expr]:
    return node.iter_expressions()


def _listed(value: object) -> list[exp.Expr]:
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, exp.Expr)]


def aggregate(rows: Rows, node: exp.Expr) -> Typed:
    """A whole aggregate call."""
    if isinstance(node, exp.Filter):
        where = f" FILTER (WHERE {condition(rows.context, node.args['expression'].this)})"
        if isinstance(node.this, exp.ArrayAgg):
            return _listed_values(rows, node.this, where)
        if _is_document(node.this):
            return _listed_documents(rows, node.this, where)
        found = aggregate(rows, node.this)
        return Typed(f"{found.sql}{where}", found.type)
    if isinstance(node, exp.WithinGroup):
        raise _unsupported(rows, node.this)
    if any(id(each) not in rows.answers for each in _nested(node)):
        raise _refused(rows, node, "an aggregate within an aggregate", "aggregate in a derived table first")
    name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
    how = _CALLS.get(type(node)) or _CALLS_BY_NAME.get(name)
    if how is None:
        raise _unsupported(rows, node)
    return how(rows, node)


def _nested(node: exp.Expr) -> Iterator[exp.Expr]:
    for child in _below(node):
        yield from aggregates(child)


def _unsupported(rows: Rows, node: exp.Expr) -> ConfigError:
    word = str(node.this).lower() if isinstance(node, exp.Anonymous) else written(rows, node)
    return _refused(rows, node, f"the aggregate {word}", _SUPPORTED)


def written(rows: Rows, node: exp.Expr) -> str:
    """What the user wrote for a function's name."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if type(node) in _WRITTEN:
        return _WRITTEN[type(node)]
    if "start" in node.meta:
        return rows.source.text[node.meta["start"] : node.meta["end"] + 1].lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else type(node).__name__.lower()


def _refused(rows: Rows, node: exp.Expr, what: str, hint: str) -> ConfigError:
    return rows.context.refuse(node, f"{what} is not supported in views", hint)


def argument(rows: Rows, node: exp.Expr) -> tuple[str, Typed]:
    """`DISTINCT ` or nothing, and what is aggregated."""
    inner = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    others = [part for part, value in node.args.items() if value and part not in ("this", "big_int", "expressions")]
    if others or inner is None or (isinstance(node, exp.Anonymous) and len(node.expressions) != 1):
        raise _refused(rows, node, f"this form of {written(rows, node)}", "it takes one argument")
    if isinstance(inner, exp.Order):
        raise _refused(
            rows, inner, f"ORDER BY in {written(rows, node)}", "leave it out: the result does not depend on it"
        )
    if not isinstance(inner, exp.Distinct):
        return "", settle(rows.context.translate(inner))
    if len(inner.expressions) != 1:
        raise _refused(rows, node, "DISTINCT of several values", "concatenate them as texts")
    found = settle(rows.context.translate(inner.expressions[0]))
    require_identical(rows, inner, found, "DISTINCT")
    return "DISTINCT ", found


def require_identical(rows: Rows, node: exp.Expr, typed: Typed, what: str) -> None:
    """Equal values must be one value, or which of them is shown would depend on the order of rows."""
    if not is_identical(typed):
        hint = REMEDIES.get(
            typed.type.family, "cast it to a type with one form of each value, like numeric(12,2) or text"
        )
        raise _refused(rows, node, f"{what} of {typed.type.name}", hint)


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
    raise _refused(rows, node, f"sum of {type_.name}", hint)


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
        raise _refused(rows, node, f"{name} of text, whose order depends on the database's collation,", hint)
    if value.type.family not in _EXTREMES:
        hint = REMEDIES.get(value.type.family, 'supported: numbers, date, timestamp, timestamptz, text COLLATE "C"')
        raise _refused(rows, node, f"{name} of {value.type.name}", hint)


def _truth(rows: Rows, node: exp.Expr) -> Typed:
    distinct, value = argument(rows, node)
    found = coerce(rows.context, node, value, BOOL)
    name = "bool_or" if isinstance(node, exp.LogicalOr) else "bool_and"
    if found.type.family is not Family.BOOL:
        raise _refused(rows, node, f"{name} of {found.type.name}", "write a comparison, like column = 1")
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
    if any(id(each) not in rows.answers for each in _nested(inner)):
        raise _refused(rows, node, "an aggregate within an aggregate", "aggregate in a derived table first")
    distinct, value = argument(rows, inner)
    if value.type.family is Family.FLOAT:
        hint = "it depends on the order of rows: make the column a numeric in Postgres, or average when reading"
        raise _refused(rows, node, f"avg of {value.type.name}", hint)
    total = summed(rows, inner, value, distinct)
    return replace(total, sql=total.sql + suffix), Typed(f"count({distinct}{value.sql}){suffix}", INT8)


def _average(rows: Rows, node: exp.Expr) -> Typed:
    raise _refused(rows, node, "avg here", "compute it in a derived table")


def _listed_texts(rows: Rows, node: exp.Expr) -> Typed:
    """string_agg(), in an order that is sure."""
    separator = node.args.get("separator")
    if not isinstance(separator, exp.Literal) or not separator.args.get("is_string"):
        raise _refused(rows, node, "string_agg without a literal between its texts", "write string_agg(x, ', ' ..)")
    inner = node.this if isinstance(node.this, exp.Order) else None
    value, distinct = _listed_value(rows, node, inner)
    found = as_text(rows.context, node, value)
    if distinct and not found.c_collated:
        hint = 'write DISTINCT column COLLATE "C", and order by the same'
        raise _refused(rows, node, "DISTINCT of texts in another order than that of bytes", hint)
    order = _order(rows, node, inner, value)
    sql = f"listagg({distinct}{found.sql}, {string(str(separator.this))}) WITHIN GROUP (ORDER BY {order})"
    return Typed(sql, TEXT)


def _listed_values(rows: Rows, node: exp.Expr, where: str = "") -> Typed:
    """array_agg(), as the text that Postgres prints for the array."""
    inner = node.this if isinstance(node.this, exp.Order) else None
    value, distinct = _listed_value(rows, node, inner)
    if distinct:
        raise _refused(rows, node, "DISTINCT in array_agg", "select the distinct values in a derived table first")
    element = array_element(value)
    if element is None:
        hint = "supported: of integers, numeric(p,s), boolean, text, uuid, date, timestamp and timestamptz"
        raise _refused(rows, node, f"array_agg of {value.type.name}", hint)
    items = f"listagg({element}, ',') WITHIN GROUP (ORDER BY {_order(rows, node, inner, value)}){where}"
    return Typed(f"concat('{{', {items}, '}}')", Type(Family.OTHER, f"{value.type.name}[]", "STRING"))


def _listed_documents(rows: Rows, node: exp.Expr, where: str = "") -> Typed:
    """json_agg() and jsonb_agg(), as the text that Postgres prints."""
    word = written(rows, node)
    arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
    inner = arguments[0] if len(arguments) == 1 else None
    if not isinstance(inner, exp.Order):
        hint = f"its result depends on the order of rows: write {word}(.. ORDER BY ..)"
        raise _refused(rows, node, f"{word} without ORDER BY", hint)
    value, distinct = _listed_value(rows, node, inner)
    if distinct:
        raise _refused(rows, node, f"DISTINCT in {word}", "select the distinct values in a derived table first")
    whole = JSON if word == "json_agg" else JSONB
    element = json_text(rows.context, inner.this, value, whole)
    items = f"listagg({element}, ', ') WITHIN GROUP (ORDER BY {_order(rows, node, inner, value)}){where}"
    return Typed(f"concat('[', {items}, ']')", whole)


def _is_document(node: exp.Expr) -> bool:
    return isinstance(node, exp.JSONArrayAgg) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == _JSONB)


def _listed_value(rows: Rows, node: exp.Expr, order: exp.Expr | None) -> tuple[Typed, str]:
    value = order.this if order is not None else node.this
    if not isinstance(value, exp.Distinct):
        return settle(rows.context.translate(value)), ""
    if len(value.expressions) != 1:
        raise _refused(rows, node, "DISTINCT of several values", "concatenate them as texts")
    return settle(rows.context.translate(value.expressions[0])), "DISTINCT "


def _order(rows: Rows, node: exp.Expr, order: exp.Expr | None, value: Typed) -> str:
    """The ORDER BY of an aggregate, which must leave nothing open."""
    word = written(rows, node)
    if order is None:
        hint = f"its result depends on the order of rows: write {word}(.. ORDER BY ..)"
        raise _refused(rows, node, f"{word} without ORDER BY", hint)
    found = [as_expr(*rows.typed(item.this)) for item in order.expressions]
    for item in order.expressions:
        require_sure_order(rows, item.this, rows.context.translate(item.this))
    columns = {each.attribute for each in found if each.attribute is not None}
    is_sure = value.sql in {each.sql for each in found} or facts(rows.plan).key_within((*columns, *rows.groups))
    if not is_sure:
        hint = "order by the value itself, or by a key as well: ORDER BY x, id"
        raise _refused(rows, node, f"{word} in an order that may leave ties", hint)
    pairs = zip(found, order.expressions, strict=True)
    return ", ".join(f"{each.sql} {direction(item)}" for each, item in pairs)


def _unordered(rows: Rows, node: exp.Expr) -> Typed:
    hint = "its result depends on the order of rows: write min(..) or max(..)"
    raise _refused(rows, node, written(rows, node), hint)


_CALLS: Final[Mapping[type[exp.Expr], Callable[[Rows, exp.Expr], Typed]]] = {
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Min: _extreme,
    exp.Max: _extreme,
    exp.LogicalAnd: _truth,
    exp.LogicalOr: _truth,
    exp.Avg: _average,
    exp.AnyValue: _unordered,
    exp.GroupConcat: _listed_texts,
    exp.ArrayAgg: _listed_values,
    exp.JSONArrayAgg: _listed_documents,
}
_CALLS_BY_NAME: Final[Mapping[str, Callable[[Rows, exp.Expr], Typed]]] = {"every": _truth, _JSONB: _listed_documents}
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
