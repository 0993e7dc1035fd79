"""Aggregates that list values in an order: string_agg, array_agg, json_agg and jsonb_agg.

In: their nodes, over the rows before GROUP BY. Out: Spark aggregates that give the text which Postgres prints. Keeps
true: an order that leaves ties, or that depends on a collation, is refused.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.declare.arrays import array_element
from jobs.declare.calls import refused, written
from jobs.declare.documents import json_text
from jobs.declare.literals import settle, string
from jobs.declare.operators import as_text
from jobs.declare.ordering import direction, require_sure_order
from jobs.declare.rows import Rows, as_expr
from jobs.declare.uniqueness import facts
from jobs.plan.types import JSON, JSONB, TEXT, Family, Type, Typed


def listed_texts(rows: Rows, node: exp.Expr) -> Typed:
    """string_agg(), in an order that is sure."""
    separator = node.args.get("separator")
    if not isinstance(separator, exp.Literal) or not separator.args.get("is_string"):
        raise refused(rows, node, "string_agg without a literal between its texts", "write string_agg(x, ', ' ..)")
    inner = node.this if isinstance(node.this, exp.Order) else None
    value, distinct = _listed_value(rows, node, inner)
    found = as_text(rows.context, node, value)
    if distinct and not found.c_collated:
        hint = 'write DISTINCT column COLLATE "C", and order by the same'
        raise refused(rows, node, "DISTINCT of texts in another order than that of bytes", hint)
    order = _order(rows, node, inner, value)
    sql = f"listagg({distinct}{found.sql}, {string(str(separator.this))}) WITHIN GROUP (ORDER BY {order})"
    return Typed(sql, TEXT)


def listed_values(rows: Rows, node: exp.Expr, where: str = "") -> Typed:
    """array_agg(), as the text that Postgres prints for the array."""
    inner = node.this if isinstance(node.this, exp.Order) else None
    value, distinct = _listed_value(rows, node, inner)
    if distinct:
        raise refused(rows, node, "DISTINCT in array_agg", "select the distinct values in a derived table first")
    element = array_element(value)
    if element is None:
        hint = "supported: of integers, numeric(p,s), boolean, text, uuid, date, timestamp and timestamptz"
        raise refused(rows, node, f"array_agg of {value.type.name}", hint)
    items = f"listagg({element}, ',') WITHIN GROUP (ORDER BY {_order(rows, node, inner, value)}){where}"
    return Typed(f"concat('{{', {items}, '}}')", Type(Family.OTHER, f"{value.type.name}[]", "STRING"))


def listed_documents(rows: Rows, node: exp.Expr, where: str = "") -> Typed:
    """json_agg() and jsonb_agg(), as the text that Postgres prints."""
    word = written(rows, node)
    arguments = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
    inner = arguments[0] if len(arguments) == 1 else None
    if not isinstance(inner, exp.Order):
        hint = f"its result depends on the order of rows: write {word}(.. ORDER BY ..)"
        raise refused(rows, node, f"{word} without ORDER BY", hint)
    value, distinct = _listed_value(rows, node, inner)
    if distinct:
        raise refused(rows, node, f"DISTINCT in {word}", "select the distinct values in a derived table first")
    whole = JSON if word == "json_agg" else JSONB
    element = json_text(rows.context, inner.this, value, whole)
    items = f"listagg({element}, ', ') WITHIN GROUP (ORDER BY {_order(rows, node, inner, value)}){where}"
    return Typed(f"concat('[', {items}, ']')", whole)


def _listed_value(rows: Rows, node: exp.Expr, order: exp.Expr | None) -> tuple[Typed, str]:
    value = order.this if order is not None else node.this
    if not isinstance(value, exp.Distinct):
        return settle(rows.context.translate(value)), ""
    if len(value.expressions) != 1:
        raise refused(rows, node, "DISTINCT of several values", "concatenate them as texts")
    return settle(rows.context.translate(value.expressions[0])), "DISTINCT "


def _order(rows: Rows, node: exp.Expr, order: exp.Expr | None, value: Typed) -> str:
    """The ORDER BY of an aggregate, which must leave nothing open."""
    word = written(rows, node)
    if order is None:
        hint = f"its result depends on the order of rows: write {word}(.. ORDER BY ..)"
        raise refused(rows, node, f"{word} without ORDER BY", hint)
    found = [as_expr(*rows.typed(item.this)) for item in order.expressions]
    for item in order.expressions:
        require_sure_order(rows, item.this, rows.context.translate(item.this))
    columns = {each.attribute for each in found if each.attribute is not None}
    is_sure = value.sql in {each.sql for each in found} or facts(rows.plan).key_within((*columns, *rows.groups))
    if not is_sure:
        hint = "order by the value itself, or by a key as well: ORDER BY x, id"
        raise refused(rows, node, f"{word} in an order that may leave ties", hint)
    pairs = zip(found, order.expressions, strict=True)
    return ", ".join(f"{each.sql} {direction(item)}" for each, item in pairs)
