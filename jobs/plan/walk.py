"""A plan looked through: the nodes below one, the relations that it reads, what its expressions read from outside.

In: a node. Out: nodes, names, attributes. Nothing here makes or changes a node.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Expr,
    Filter,
    Join,
    Lookup,
    OuterJoin,
    Plan,
    Project,
    Scan,
    SetOperation,
    Unnest,
    Window,
)


def inputs(node: Plan) -> tuple[Plan, ...]:
    """The relations that a node reads, the nested query of a Lookup last."""
    match node:
        case Scan():
            return ()
        case Join():
            return node.inputs
        case OuterJoin() | SetOperation():
            return node.left, node.right
        case Lookup():
            return node.input, node.query
        case _:
            return (node.input,)


def walk(node: Plan) -> Iterator[Plan]:
    """The node and all below it."""
    yield node
    for each in inputs(node):
        yield from walk(each)


def relations(node: Plan) -> frozenset[str]:
    """The tables and views that a plan reads."""
    return frozenset(each.relation for each in walk(node) if isinstance(each, Scan))


def own_expressions(node: Plan) -> Iterator[Expr]:
    """The expressions that a node itself evaluates."""
    match node:
        case Filter() | Join() | OuterJoin():
            yield from node.conditions
        case Project():
            yield from (expr for _, expr in node.items)
        case Aggregate():
            yield from (expr for _, expr in node.calls)
        case Window():
            yield from (call.expr for call in node.calls)
        case Lookup():
            yield from node.arguments
        case Unnest():
            yield node.array
        case _:
            return


def outer_reads(node: Plan) -> frozenset[Attribute]:
    """The attributes that a nested query reads from outside itself."""
    made = {column for each in walk(node) for column in each.columns}
    read = {attribute for each in walk(node) for expr in own_expressions(each) for attribute in expr.reads}
    return frozenset(read - made)
