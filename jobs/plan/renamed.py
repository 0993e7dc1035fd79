"""The same view over relations of other names: a twin that reads twins.

In: a plan, names. Out: the plan, in which everything but the names of what it scans is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.plan.nodes import Aggregate, Join, Lookup, OuterJoin, Plan, Scan, SetOperation
from jobs.plan.view import ViewPlan


def renamed(view: ViewPlan, names: Mapping[str, str]) -> ViewPlan:
    """The view's plan; names that are not among these stay."""
    tally = view.tally
    if tally is not None:
        aggregate = _plan(tally.aggregate, names)
        assert isinstance(aggregate, Aggregate)
        tally = replace(tally, aggregate=aggregate)
    return replace(view, root=_plan(view.root, names), tally=tally)


def _plan(node: Plan, names: Mapping[str, str]) -> Plan:
    match node:
        case Scan():
            return replace(node, relation=names.get(node.relation, node.relation))
        case Join():
            return replace(node, inputs=tuple(_plan(each, names) for each in node.inputs))
        case OuterJoin() | SetOperation():
            return replace(node, left=_plan(node.left, names), right=_plan(node.right, names))
        case Lookup():
            return replace(node, input=_plan(node.input, names), query=_plan(node.query, names))
        case _:
            return replace(node, input=_plan(node.input, names))
