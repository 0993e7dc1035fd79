"""What a view keeps of each group, so that changed rows can be added to it and taken from it without the others.

In: a plan whose top is GROUP BY. Out: the plan with the counts that this takes beside its results, or nothing where it
cannot be. Keeps true: of each result, its value over more or fewer rows follows from its values over the parts.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from jobs.plan.nodes import Aggregate, Attribute, Expr, Filter, Join, Plan, Project, Scan
from jobs.plan.types import INT4, INT8, Family
from jobs.plan.walk import walk
from sinks.spec import HIDDEN

_CALL: Final = re.compile(r"(count|sum|min|max|bool_and|bool_or)\((DISTINCT )?")
_ROWS: Final = frozenset({"count(1)", "count(*)"})
_ADDED: Final = frozenset({Family.INT, Family.DECIMAL})
_COMPARED: Final = _ADDED | {Family.BOOL, Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ, Family.TEXT}


class Fold(enum.Enum):
    """How a result follows from those over the parts."""

    COUNT = "count"
    SUM = "sum"
    LEAST = "least"
    """Unless the least may be gone."""
    GREATEST = "greatest"


_FOLDS: Final = {
    "count": Fold.COUNT,
    "sum": Fold.SUM,
    **dict.fromkeys(("min", "bool_and"), Fold.LEAST),
    **dict.fromkeys(("max", "bool_or"), Fold.GREATEST),
}


@dataclass(frozen=True, slots=True)
class Tally:
    """`aggregate` is the plan's own, with all that is kept; `hidden` are those of its results that the view lacks.

    `rows` counts a group's rows; `filled`, of each sum, the values that it adds: of none, a sum is NULL. `sign` is a
    number that nothing in the plan has.
    """

    aggregate: Aggregate
    rows: Attribute
    filled: Mapping[Attribute, Attribute]
    hidden: tuple[Attribute, ...]
    sign: Attribute

    @property
    def names(self) -> tuple[str, ...]:
        """What the hidden columns are called in the view's table."""
        return tuple(f"{HIDDEN}{column.sql}" for column in self.hidden)


def fold_of(call: Expr) -> Fold | None:
    """How an aggregate's result is kept; None if all rows of the group are needed."""
    found = _CALL.match(call.sql)
    if found is None:
        return None
    fold = _FOLDS[found[1]]
    if fold in (Fold.LEAST, Fold.GREATEST):
        return fold if call.type.family in _COMPARED else None
    return fold if not found[2] and (fold is Fold.COUNT or call.type.family in _ADDED) else None


def tallied(root: Plan, outputs: Iterable[Attribute]) -> tuple[Plan, Tally] | None:
    """The plan with what is kept, and what that is."""
    shown = frozenset(outputs)
    own = _aggregate(root)
    if own is None or not frozenset(own.groups) <= shown or not _is_sum_of_rows(own.input):
        return None
    if any(fold_of(expr) is None for _, expr in own.calls):
        return None
    numbers = iter(range(_highest(root) + 1, _highest(root) + len(own.calls) + 3))
    sign = Attribute(next(numbers), "sign", INT4, nullable=False)
    calls = list(own.calls)

    def counted(sql: str, reads: frozenset[Attribute]) -> Attribute:
        found = next((column for column, expr in calls if expr.sql == sql), None)
        if found is None:
            found = Attribute(next(numbers), "count", INT8, nullable=False)
            calls.append((found, Expr(sql, INT8, reads)))
        return found

    sums = [(column, expr) for column, expr in own.calls if fold_of(expr) is Fold.SUM]
    filled = {column: counted("count(" + expr.sql.removeprefix("sum("), expr.reads) for column, expr in sums}
    rows = next((column for column, expr in calls if expr.sql in _ROWS), None) or counted("count(1)", frozenset())
    hidden = [column for column, _ in calls if column not in shown]
    if not any(column in (rows, *filled.values()) for column in hidden):
        # A row that another hand has put right has NULLs in what is hidden: there must be a column that has none else.
        again = Attribute(next(numbers), "count", INT8, nullable=False)
        calls.append((again, Expr("count(1)", INT8, frozenset())))
        hidden.append(again)
    aggregate = replace(own, calls=tuple(calls))
    return _passing(root, aggregate, hidden), Tally(aggregate, rows, filled, tuple(hidden), sign)


def _aggregate(node: Plan) -> Aggregate | None:
    while isinstance(node, Project):
        node = node.input
    return node if isinstance(node, Aggregate) else None


def _is_sum_of_rows(node: Plan) -> bool:
    """Whether its rows with a changed row in them are the changed row's, joined with others."""
    match node:
        case Scan():
            return True
        case Filter() | Project():
            return _is_sum_of_rows(node.input)
        case Join():
            return all(map(_is_sum_of_rows, node.inputs))
        case _:
            return False


def _highest(root: Plan) -> int:
    return max(column.id for node in walk(root) for column in node.columns)


def _passing(node: Plan, aggregate: Aggregate, hidden: Iterable[Attribute]) -> Plan:
    if not isinstance(node, Project):
        return aggregate
    below = _passing(node.input, aggregate, hidden)
    made = {column for column, _ in node.items}
    return Project(below, (*node.items, *((column, Expr.of(column)) for column in hidden if column not in made)))
