"""The functions that may stand before OVER.

In: a function's node, the rows. Out: the Spark call in two pieces, before and behind its OVER. Keeps true: types are
Postgres's; where the result hangs on the order of tied rows, it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from jobs.declare.aggregates import aggregate
from jobs.declare.calls import is_aggregate, written
from jobs.declare.conditionals import unified
from jobs.declare.literals import settle
from jobs.declare.rows import Rows
from jobs.plan.types import FLOAT8, INT4, INT8, Typed

_SUPPORTED: Final = (
    "supported: row_number, rank, dense_rank, percent_rank, cume_dist, ntile, lag, lead, first_value, last_value,"
    " nth_value, and the aggregates"
)


@dataclass(frozen=True, slots=True)
class Call:
    """`before OVER (..) after`. Tied rows may differ in it `by_row`, or if `framed` when the frame is of rows."""

    before: str
    after: str
    typed: Typed
    by_row: bool = False
    framed: bool = False
    needs_order: bool = False


def window_function(rows: Rows, node: exp.Expr) -> Call:
    """What a window call calls."""
    how = _CALLS.get(type(node))
    if how is not None:
        return how(rows, node)
    if isinstance(node, exp.Filter):
        hint = "write sum(CASE WHEN .. THEN .. END)"
        raise rows.context.refuse(node, "FILTER of a window function is not supported in views", hint)
    if not is_aggregate(node) or isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)):
        word = written(rows, node.this if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)) else node)
        raise rows.context.refuse(
            node, f"the window function {word} is not supported in this form in views", _SUPPORTED
        )
    refuse_distinct(rows, node)
    found = aggregate(rows, node)
    return Call(found.sql, "", found, framed=True)


def refuse_distinct(rows: Rows, node: exp.Expr) -> None:
    """Postgres has no DISTINCT in window functions."""
    if isinstance(node.this, exp.Distinct):
        raise rows.context.refuse(node, "DISTINCT in a window function is not supported", "Postgres has none either")


def _number(name: str, *, by_row: bool) -> Callable[[Rows, exp.Expr], Call]:
    def call(_rows: Rows, _node: exp.Expr) -> Call:
        return Call(f"CAST({name}()", " AS BIGINT)", Typed("", INT8), by_row=by_row, needs_order=True)

    return call


def _share(name: str) -> Callable[[Rows, exp.Expr], Call]:
    def call(_rows: Rows, _node: exp.Expr) -> Call:
        return Call(f"{name}()", "", Typed("", FLOAT8), needs_order=True)

    return call


def _ntile(rows: Rows, node: exp.Expr) -> Call:
    return Call(f"ntile({_whole(rows, node, node.this, 1)})", "", Typed("", INT4), by_row=True, needs_order=True)


def _shifted(rows: Rows, node: exp.Expr) -> Call:
    """lag() and lead(), which see the whole partition whatever the frame."""
    name = "lag" if isinstance(node, exp.Lag) else "lead"
    value = settle(rows.context.translate(node.this))
    offset = _whole(rows, node, node.args.get("offset"), 0) if node.args.get("offset") else 1
    if not node.args.get("default"):
        return Call(f"{name}({value.sql}, {offset})", "", value, by_row=True, needs_order=True)
    default, reads = rows.typed(node.args["default"])
    if reads:
        hint = "write coalesce(.., column), if the shifted column is never NULL"
        raise rows.context.refuse(node, f"only a constant can be the default of {name} in views", hint)
    value, default = unified(rows.context, node, [value, default])
    return Call(f"{name}({value.sql}, {offset}, {default.sql})", "", value, by_row=True, needs_order=True)


def _picked(rows: Rows, node: exp.Expr) -> Call:
    """first_value(), last_value(), nth_value(): of the frame."""
    value = settle(rows.context.translate(node.this))
    if isinstance(node, exp.NthValue):
        at = _whole(rows, node, node.args.get("offset"), 1)
        return Call(f"nth_value({value.sql}, {at})", "", value, by_row=True, needs_order=True)
    name = "first_value" if isinstance(node, exp.FirstValue) else "last_value"
    return Call(f"{name}({value.sql})", "", value, by_row=True, needs_order=True)


def _whole(rows: Rows, node: exp.Expr, value: exp.Expr | None, least: int) -> int:
    if isinstance(value, exp.Literal) and not value.args.get("is_string") and str(value.this).isdigit():
        found = int(value.this)
        if least <= found < 2**31:
            return found
    raise rows.context.refuse(value or node, f"a whole number from {least} is expected here", "write a plain number")


_CALLS: Final[Mapping[type[exp.Expr], Callable[[Rows, exp.Expr], Call]]] = {
    exp.RowNumber: _number("row_number", by_row=True),
    exp.Rank: _number("rank", by_row=False),
    exp.DenseRank: _number("dense_rank", by_row=False),
    exp.PercentRank: _share("percent_rank"),
    exp.CumeDist: _share("cume_dist"),
    exp.Ntile: _ntile,
    exp.Lag: _shifted,
    exp.Lead: _shifted,
    exp.FirstValue: _picked,
    exp.LastValue: _picked,
    exp.NthValue: _picked,
}
WORDS: Final = tuple(sorted(kind.sql_name().lower() for kind in _CALLS if issubclass(kind, exp.Func)))
