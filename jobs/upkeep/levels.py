"""What asking for a column's affected values costs.

In: a node and one of its columns. Out: a Level. Keeps true: FREE and PARTITION columns can be read off changed rows and
the new state alone; only RESULT columns need the old state.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Expr,
    Filter,
    Join,
    Keyed,
    Limit,
    Lookup,
    OuterJoin,
    Plan,
    Project,
    Scan,
    SetOperation,
    Unnest,
    Window,
)


class Level(enum.IntEnum):
    """FREE: of changed rows. PARTITION: of all rows in changed window partitions. RESULT: of results, old and new."""

    FREE = 0
    PARTITION = 1
    RESULT = 2


def level(node: Plan, column: Attribute) -> Level:  # noqa: C901 - one case a node
    """The cost of asking the node for this column of its own."""
    match node:
        case Scan():
            return Level.FREE
        case Filter() | Keyed():
            return level(node.input, column)
        case Project():
            return _of(node.input, next(expr for made, expr in node.items if made == column))
        case Join():
            return level(next(each for each in node.inputs if column in each.columns), column)
        case OuterJoin():
            return level(node.left if column in node.left.columns else node.right, column)
        case Aggregate():
            return level(node.input, column) if column in node.groups else Level.RESULT
        case Window():
            return _beside_windows(node, column)
        case Lookup():
            return Level.RESULT if column == node.column else level(node.input, column)
        case Unnest():
            return _of(node.input, node.array) if column == node.column else level(node.input, column)
        case SetOperation():
            at = node.columns.index(column)
            return max(level(node.left, node.left.columns[at]), level(node.right, node.right.columns[at]))
        case Limit():
            return Level.RESULT


def highest(node: Plan, columns: Iterable[Attribute]) -> Level:
    """The cost of asking for all of these."""
    return max((level(node, column) for column in columns), default=Level.FREE)


def _of(node: Plan, expr: Expr) -> Level:
    return highest(node, (column for column in expr.reads if column in node.columns))


def _beside_windows(node: Window, column: Attribute) -> Level:
    if column not in node.input.columns:
        return Level.RESULT
    below = level(node.input, column)
    if all(column in call.partition for call in node.calls):
        return below
    reached = all(call.partition and highest(node.input, call.partition) <= Level.PARTITION for call in node.calls)
    return max(below, Level.PARTITION) if reached else Level.RESULT
