"""A plan without the columns that nothing reads.

In: a plan and the columns that are wanted of it. Out: the same plan, its Scans and Projects as narrow as they can be.
Keeps true: the wanted columns are the same; a Scan keeps its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Join,
    Keyed,
    Limit,
    Lookup,
    LookupKind,
    OuterJoin,
    Plan,
    Project,
    Scan,
    SetOperation,
    Window,
)
from jobs.plan.walk import own_expressions, walk

_ORDER: Final = re.compile(r"c\d+")


def pruned(plan: Plan, wanted: Iterable[Attribute]) -> Plan:
    """The plan with the wanted columns, and those that they need."""
    return _narrowed(plan, _needed(plan, wanted))


def _needed(plan: Plan, wanted: Iterable[Attribute]) -> frozenset[str]:
    nodes = list(walk(plan))
    found = {column.sql for column in wanted}
    for node in nodes:
        found |= _always(node)
    items = [(column, expr) for node in nodes if isinstance(node, Project) for column, expr in node.items]
    grown = True
    while grown:
        before = len(found)
        for column, expr in items:
            if column.sql in found:
                found |= {each.sql for each in expr.reads}
        grown = len(found) > before
    return frozenset(found)


def _always(node: Plan) -> set[str]:
    """The columns that a node reads whatever is wanted of it."""
    if isinstance(node, Project):
        return set()
    found = {column.sql for expr in own_expressions(node) for column in expr.reads}
    match node:
        case Aggregate():
            found |= {column.sql for column in node.groups}
        case Window():
            found |= {column.sql for call in node.calls for column in call.partition}
        case SetOperation():
            found |= {column.sql for side in (node.left, node.right) for column in side.columns}
        case Limit():
            found |= {column for text in node.order for column in _ORDER.findall(text)}
        case Lookup() if node.kind is not LookupKind.EXISTS:
            found |= {column.sql for column in node.query.columns}
        case _:
            pass
    return found


def _narrowed(node: Plan, needed: frozenset[str]) -> Plan:
    match node:
        case Scan():
            kept = [
                (column, source)
                for column, source in zip(node.columns, node.sources, strict=True)
                if column.sql in needed or column in node.key
            ]
            return replace(node, columns=tuple(c for c, _ in kept), sources=tuple(s for _, s in kept))
        case Project():
            items = tuple(item for item in node.items if item[0].sql in needed)
            return Project(_narrowed(node.input, needed), items)
        case Join():
            return replace(node, inputs=tuple(_narrowed(each, needed) for each in node.inputs))
        case OuterJoin() | SetOperation():
            return replace(node, left=_narrowed(node.left, needed), right=_narrowed(node.right, needed))
        case Lookup():
            return replace(node, input=_narrowed(node.input, needed), query=_narrowed(node.query, needed))
        case Keyed():
            return node
        case _:
            changed: Any = {"input": _narrowed(node.input, needed)}
            return replace(node, **changed)
