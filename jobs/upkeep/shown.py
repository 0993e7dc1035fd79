"""Whether a change of one relation shows by itself which of a view's rows it can touch.

In: a plan, columns of it, the relation that changed. Out: the relation's own columns from which these come. Keeps true:
each row of the plan that a changed row has a part in, or had, has that row's values there; so all of these values are
keys enough. Some may be of rows that no filter or join lets through: they cost a look and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobs.plan.nodes import Aggregate, Attribute, Filter, Join, OuterJoin, Plan, Project, Scan
from jobs.plan.walk import walk


def shown_by(node: Plan, columns: Iterable[Attribute], relation: str) -> dict[Attribute, str] | None:
    """The source of each column; None where other rows than these may be touched, or no column names them."""
    scans = [each for each in walk(node) if isinstance(each, Scan) and each.relation == relation]
    found = {column: _source(node, column, relation) for column in columns}
    sources = {column: source for column, source in found.items() if source is not None}
    return sources if sources and len(sources) == len(found) and len(scans) == 1 else None


def _source(node: Plan, column: Attribute, relation: str) -> str | None:
    """What lies between the scan and the column, all that the relation takes part in, keeps its rows apart."""
    match node:
        case Scan():
            return node.sources[node.columns.index(column)] if node.relation == relation else None
        case Filter():
            return _source(node.input, column, relation)
        case Project():
            below = next(expr.attribute for made, expr in node.items if made == column)
            return _source(node.input, below, relation) if below is not None else None
        case Aggregate():
            return _source(node.input, column, relation) if column in node.groups else None
        case Join():
            return _source(next(each for each in node.inputs if column in each.columns), column, relation)
        case OuterJoin() if not node.full and column in node.left.columns:
            return _source(node.left, column, relation)
        case _:
            return None
