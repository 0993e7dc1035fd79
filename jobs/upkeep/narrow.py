"""A plan narrowed to the rows that matter for some keys, as near to its scans as is right.

In: a plan, and which of its columns are keys. Out: a plan with Keyed nodes. Only a gain in speed: whoever runs it keeps
the condition on top. Keeps true: no row is dropped on which a wanted row depends, and none is made that looks like one;
so a key from the side of an outer join that may be NULL is not pushed into that side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Equality,
    Expr,
    Filter,
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
    Unnest,
    Window,
    inputs,
    outer_reads,
    relations,
)
from jobs.plan.types import BOOL
from jobs.upkeep.equalities import Equalities
from jobs.upkeep.tables import KEYS


@dataclass(frozen=True, slots=True)
class Key:
    """A column of KEYS, and between which literals its values lie, if that is known; NULL may be among them."""

    name: str
    low: str | None = None
    high: str | None = None


Known = Mapping[Attribute, Key]
"""Columns whose wanted values are those of a key."""


def narrow(node: Plan, known: Known) -> Plan:  # noqa: C901 - one case a node
    """The plan, of which only rows with these keys matter."""
    known = _own(node, known)
    if not known:
        return node
    match node:
        case Scan():
            pairs = tuple((column, key.name) for column, key in known.items())
            return Keyed(_bounded(node, known), KEYS, pairs)
        case Filter():
            return replace(node, input=narrow(node.input, _spread(known, node.conditions)))
        case Project():
            passed = {expr.attribute: known[made] for made, expr in node.items if made in known and expr.attribute}
            return replace(node, input=narrow(node.input, passed))
        case Join():
            spread = _spread(known, node.conditions)
            return replace(node, inputs=tuple(narrow(each, spread) for each in node.inputs))
        case OuterJoin():
            return _outer_join(node, known)
        case Aggregate():
            return replace(node, input=narrow(node.input, {c: key for c, key in known.items() if c in node.groups}))
        case Window():
            common = {c: key for c, key in known.items() if all(c in call.partition for call in node.calls)}
            return replace(node, input=narrow(node.input, common))
        case Lookup():
            return replace(node, input=narrow(node.input, known), query=_query(node, known))
        case SetOperation():
            left, right = (
                narrow(side, {c: known[out] for out, c in zip(node.columns, side.columns, strict=True) if out in known})
                for side in (node.left, node.right)
            )
            return replace(node, left=left, right=right)
        case Unnest() | Keyed():
            return replace(node, input=narrow(node.input, known))
        case Limit():
            return node


def _bounded(node: Scan, known: Known) -> Plan:
    """Delta leaves out files by literals alone."""
    conditions = tuple(
        Expr(f"{column.sql} BETWEEN {key.low} AND {key.high} OR {column.sql} IS NULL", BOOL, frozenset({column}))
        for column, key in known.items()
        if key.low is not None
    )
    return Filter(node, conditions) if conditions else node


def _own(node: Plan, known: Known) -> dict[Attribute, Key]:
    columns = frozenset(node.columns)
    return {column: key for column, key in known.items() if column in columns}


def _spread(known: Known, conditions: Iterable[Expr]) -> dict[Attribute, Key]:
    """What is known of a column is known of its equals."""
    equal = Equalities(conditions)
    spread = {same: key for column, key in known.items() for same in equal.of(column)}
    return {**spread, **known}


def _outer_join(node: OuterJoin, known: Known) -> Plan:
    """Keys of the preserved side go there, and over the conditions to the other; a FULL JOIN preserves both."""
    if node.full:
        return node
    preserved = _own(node.left, known)
    spread = _spread(preserved, (each for each in node.conditions if isinstance(each, Equality)))
    return replace(node, left=narrow(node.left, preserved), right=narrow(node.right, _own(node.right, spread)))


def _query(node: Lookup, known: Known) -> Plan:
    """A nested query's rows matter where they are linked with outer rows that do."""
    asked = dict(known)
    if node.kind is LookupKind.IN and node.strict and not outer_reads(node.query):
        for argument, column in zip(node.arguments, node.query.columns, strict=True):
            same = argument.attribute
            if same is not None and same in known and argument.type == column.type:
                asked[column] = known[same]
        return narrow(node.query, asked)
    return _linked(node.query, known)


def _linked(node: Plan, known: Known) -> Plan:
    """The nested query, narrowed where its conditions equate its own columns with keys of the outer query."""
    match node:
        case Filter() if not outer_reads(node.input):
            return replace(node, input=narrow(node.input, _spread(known, node.conditions)))
        case Join() if not any(map(outer_reads, node.inputs)):
            spread = _spread(known, node.conditions)
            return replace(node, inputs=tuple(narrow(each, spread) for each in node.inputs))
        case Filter() | Project() | Aggregate() | Window() | Limit() | Unnest():
            return replace(node, input=_linked(node.input, known))
        case _:
            return node


def narrowed_scans(node: Plan) -> tuple[frozenset[str], frozenset[str]]:
    """The relations of which only keys are read, and those that are read whole in some place."""
    if isinstance(node, Keyed):
        return relations(node), frozenset()
    if isinstance(node, Scan):
        return frozenset(), frozenset({node.relation})
    below = [narrowed_scans(each) for each in inputs(node)]
    by_key = frozenset().union(*(each[0] for each in below))
    whole = frozenset().union(*(each[1] for each in below))
    return by_key - whole, whole
