"""Views that are the first rows of one relation: LIMIT over its rows one by one.

In: a ViewPlan. Out: where in it they are cut, or None. Keeps true: each row of the view is one of the relation's, and
has its key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.plan.nodes import Filter, Limit, Plan, Project, Scan
from jobs.plan.view import ViewPlan


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first `count` rows of what `root` makes of the `scan`."""

    root: Plan
    scan: Scan
    count: int

    def cut_at(self, count: int) -> Plan:
        """The same plan for so many rows."""
        return _cut_at(self.root, count)


def first_rows(view: ViewPlan) -> FirstRows | None:
    """How the view is cut. With OFFSET, or filtered afterwards, its rows are not all of the first."""
    node = view.root
    while isinstance(node, Project):
        node = node.input
    if not isinstance(node, Limit) or node.offset or node.count is None:
        return None
    below = node.input
    while isinstance(below, Project | Filter):
        below = below.input
    is_keyed = isinstance(below, Scan) and below.key and set(below.key) <= set(view.outputs)
    return FirstRows(view.root, below, node.count) if isinstance(below, Scan) and is_keyed else None


def _cut_at(node: Plan, count: int) -> Plan:
    if isinstance(node, Limit):
        return replace(node, count=count)
    assert isinstance(node, Project)
    return replace(node, input=_cut_at(node.input, count))
