"""Which nodes are calls of aggregates, and what their users wrote for them.

In: parsed expressions. Out: the calls that belong to a query, their names, refusals that quote these. Keeps true: the
function of a window is no aggregate of the query around it, what it is given may be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.rows import Rows

JSONB_AGG: Final = "jsonb_agg"
_NAMED: Final = frozenset({"every", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "xmlagg"})
_WRITTEN: Final[Mapping[type[exp.Expr], str]] = {
    exp.GroupConcat: "string_agg",
    exp.JSONArrayAgg: "json_agg",
    exp.JSONObjectAgg: "json_object_agg",
}


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


def nested(node: exp.Expr) -> Iterator[exp.Expr]:
    """Aggregate calls within what a call is given."""
    for child in _below(node):
        yield from aggregates(child)


def is_document(node: exp.Expr) -> bool:
    """Whether a call is json_agg() or jsonb_agg()."""
    return isinstance(node, exp.JSONArrayAgg) or (
        isinstance(node, exp.Anonymous) and str(node.this).lower() == JSONB_AGG
    )


def written(rows: Rows, node: exp.Expr) -> str:
    """What the user wrote for a function's name."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if type(node) in _WRITTEN:
        return _WRITTEN[type(node)]
    if "start" in node.meta:
        return rows.source.text[node.meta["start"] : node.meta["end"] + 1].lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else type(node).__name__.lower()


def refused(rows: Rows, node: exp.Expr, what: str, hint: str) -> ConfigError:
    """The error of something that no view can have."""
    return rows.context.refuse(node, f"{what} is not supported in views", hint)
