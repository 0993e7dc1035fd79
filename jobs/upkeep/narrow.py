"""A plan narrowed to the rows that matter for some keys, as near to its scans as is right.

In: a plan, and which of its columns are keys. Out: a plan with Keyed nodes. Only a gain in speed: whoever runs it keeps
the condition on top. Keeps true: no row is dropped on which a wanted row depends, and none is made that looks like one;
so a key from the side of an outer join that may be NULL is not pushed into that side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
)
from jobs.plan.types import BOOL
from jobs.plan.walk import inputs, outer_reads, relations
from jobs.upkeep.equalities import Equalities
from jobs.upkeep.tables import KEYS


@dataclass(frozen=True, slots=True)
class Key:
    """A column of KEYS, and between which literals its values lie, if that is known; NULL may be among them.

    `values` are an Arrow array of them, if they are at hand; then there need not be such a column.
    """

    name: str | None
    low: str | None = None
    high: str | None = None
    values: Any = field(default=None, compare=False)


Known = Mapping[Attribute, Key]
"""Columns whose wanted values are those of a key."""
Narrowed = tuple[Plan, Known]
"""A plan of which only wanted rows matter, and what is known by then of its columns' values."""
ScanOf = Callable[[Scan, Known], Narrowed]


def narrow(node: Plan, known: Known) -> Plan:
    """The plan, of which only rows with these keys matter."""
    return Narrowing(keyed_scan).narrow(node, known)[0]


def keyed_scan(node: Scan, known: Known) -> Narrowed:
    """The rows that have the keys; what values their other columns have is not known before they are read."""
    pairs = tuple((column, key.name) for column, key in known.items() if key.name is not None)
    return Keyed(_bounded(node, known), KEYS, pairs), {}


def _bounded(node: Scan, known: Known) -> Plan:
    """Delta leaves out files by literals alone."""
    conditions = tuple(
        Expr(f"{column.sql} BETWEEN {key.low} AND {key.high} OR {column.sql} IS NULL", BOOL, frozenset({column}))
        for column, key in known.items()
        if key.low is not None
    )
    return Filter(node, conditions) if conditions else node


@dataclass(frozen=True, slots=True)
class Narrowing:
    """`scan` says what becomes of a scan; whoever reads its rows at once knows more of what is joined with it."""

    scan: ScanOf

    def narrow(self, node: Plan, known: Known) -> Narrowed:  # noqa: C901 - one case a node
        """One node."""
        known = _own(node, known)
        if not known:
            return node, {}
        match node:
            case Scan():
                return self.scan(node, known)
            case Filter():
                return self._below(node, spread(known, node.conditions))
            case Project():
                passed = {expr.attribute: known[made] for made, expr in node.items if made in known and expr.attribute}
                plan, found = self._below(node, passed)
                same = ((made, expr.attribute) for made, expr in node.items)
                return plan, {made: found[below] for made, below in same if below is not None and below in found}
            case Join():
                return self._join(node, known)
            case OuterJoin():
                return self._outer_join(node, known)
            case Aggregate():
                plan, found = self._below(node, {c: key for c, key in known.items() if c in node.groups})
                return plan, {group: found[group] for group in node.groups if group in found}
            case Window():
                return self._below(node, {c: k for c, k in known.items() if all(c in e.partition for e in node.calls)})
            case Lookup():
                plan, found = self.narrow(node.input, known)
                return replace(node, input=plan, query=self._query(node, {**found, **known})), found
            case SetOperation():
                left, right = (
                    self.narrow(side, {c: known[out] for out, c in _pairs(node, side) if out in known})[0]
                    for side in (node.left, node.right)
                )
                return replace(node, left=left, right=right), {}
            case Unnest() | Keyed():
                return self._below(node, known)
            case Limit():
                return node, {}

    def _below(self, node: Filter | Project | Aggregate | Window | Unnest | Keyed, known: Known) -> Narrowed:
        plan, found = self.narrow(node.input, known)
        return replace(node, input=plan), found

    def _join(self, node: Join, known: Known) -> Narrowed:
        """The values of an input that was read are keys of those that are joined with it."""
        inputs_ = list(node.inputs)
        wider, found = spread(known, node.conditions), dict[Attribute, Key]()
        left = list(range(len(inputs_)))
        while left:
            at = next((each for each in left if _own(inputs_[each], wider)), left[0])
            left.remove(at)
            inputs_[at], values = self.narrow(inputs_[at], wider)
            found |= values
            wider = {**spread(values, node.conditions), **wider}
        return replace(node, inputs=tuple(inputs_)), found

    def _outer_join(self, node: OuterJoin, known: Known) -> Narrowed:
        """Keys of the preserved side go there, and over the conditions to the other; a FULL JOIN preserves both."""
        if node.full:
            return node, {}
        preserved = _own(node.left, known)
        left, found = self.narrow(node.left, preserved)
        wider = spread({**found, **preserved}, (each for each in node.conditions if isinstance(each, Equality)))
        right, _ = self.narrow(node.right, wider)
        # The other side's columns are NULL as well where nothing matches.
        return replace(node, left=left, right=right), found

    def _query(self, node: Lookup, known: Known) -> Plan:
        """A nested query's rows matter where they are linked with outer rows that do."""
        asked = dict(known)
        if node.kind is LookupKind.IN and node.strict and not outer_reads(node.query):
            for argument, column in zip(node.arguments, node.query.columns, strict=True):
                same = argument.attribute
                if same is not None and same in known and argument.type == column.type:
                    asked[column] = known[same]
            return self.narrow(node.query, asked)[0]
        return self._linked(node.query, known)

    def _linked(self, node: Plan, known: Known) -> Plan:
        """The nested query, narrowed where its conditions equate its own columns with keys of the outer query."""
        match node:
            case Filter() if not outer_reads(node.input):
                return replace(node, input=self.narrow(node.input, spread(known, node.conditions))[0])
            case Join() if not any(map(outer_reads, node.inputs)):
                return self._join(node, known)[0]
            case Filter() | Project() | Aggregate() | Window() | Limit() | Unnest():
                return replace(node, input=self._linked(node.input, known))
            case _:
                return node


def _pairs(node: SetOperation, side: Plan) -> Iterable[tuple[Attribute, Attribute]]:
    return zip(node.columns, side.columns, strict=True)


def _own(node: Plan, known: Known) -> dict[Attribute, Key]:
    columns = frozenset(node.columns)
    return {column: key for column, key in known.items() if column in columns}


def spread(known: Known, conditions: Iterable[Expr]) -> dict[Attribute, Key]:
    """What is known of a column is known of its equals."""
    equal = Equalities(conditions)
    wider = {same: key for column, key in known.items() for same in equal.of(column)}
    return {**wider, **known}


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
