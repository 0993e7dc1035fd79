"""The tree of relations that a view's SELECT is.

In: what jobs.declare found. Out: frozen nodes. Keeps true: an attribute's number is its own in the whole tree, so it
alone says where a value comes from, and texts of nested queries never take each other's names; expressions hold no
queries (a nested query is a Lookup, a Window or an Aggregate a node); RIGHT JOIN is LEFT, WHERE beside inner joins is
among their conditions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from jobs.plan.types import Type


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column of one relation; `name` is for people."""

    id: int
    name: str = field(compare=False)
    type: Type = field(compare=False)
    nullable: bool = field(default=True, compare=False)

    @property
    def sql(self) -> str:
        """What every text calls it."""
        return f"c{self.id}"


@dataclass(frozen=True, slots=True)
class Expr:
    """A deterministic Spark expression over attributes; `attribute` where it is one as it stands."""

    sql: str
    type: Type
    reads: frozenset[Attribute]
    attribute: Attribute | None = None

    @classmethod
    def of(cls, attribute: Attribute) -> Expr:
        """The attribute itself."""
        return cls(attribute.sql, attribute.type, frozenset({attribute}), attribute)


@dataclass(frozen=True, slots=True)
class Equality(Expr):
    """`left = right`, both attributes of the same type, so that knowing one side is knowing the other."""

    left: Attribute | None = None
    right: Attribute | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """One mention of a table or a view; `sources` are its Delta columns, one to one. `key` is unique there."""

    relation: str
    columns: tuple[Attribute, ...]
    sources: tuple[str, ...]
    key: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which all conditions hold. In a nested query, conditions may read the outer query's attributes."""

    input: Plan
    conditions: tuple[Expr, ...]

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """Those of its input."""
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Project:
    """One row for each, of these columns alone; an attribute that passes through keeps its number."""

    input: Plan
    items: tuple[tuple[Attribute, Expr], ...]

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """What it makes."""
        return tuple(attribute for attribute, _ in self.items)


@dataclass(frozen=True, slots=True)
class Join:
    """The inner join of any number of relations; without conditions their product."""

    inputs: tuple[Plan, ...]
    conditions: tuple[Expr, ...]

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """Those of all inputs."""
        return tuple(column for each in self.inputs for column in each.columns)


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """LEFT JOIN, or FULL JOIN."""

    left: Plan
    right: Plan
    conditions: tuple[Expr, ...]
    full: bool = False

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """Those of both sides."""
        return (*self.left.columns, *self.right.columns)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row for each combination of `groups`, which are attributes of the input; DISTINCT is one without calls.

    Without groups it is one row, also of no input at all. A call's Expr is the whole aggregate, e.g. `sum(c3 * c4)`.
    """

    input: Plan
    groups: tuple[Attribute, ...]
    calls: tuple[tuple[Attribute, Expr], ...]

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The groups and the results."""
        return (*self.groups, *(attribute for attribute, _ in self.calls))


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A window function's result, `rank() OVER (PARTITION BY c1 ORDER BY c2)`; its partition is of attributes."""

    column: Attribute
    expr: Expr
    partition: frozenset[Attribute]


@dataclass(frozen=True, slots=True)
class Window:
    """Its input, with window functions' results beside each row."""

    input: Plan
    calls: tuple[WindowCall, ...]

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The input's and the results."""
        return (*self.input.columns, *(call.column for call in self.calls))


class LookupKind(enum.Enum):
    """What a nested query is asked."""

    EXISTS = "exists"
    IN = "in"
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Its input, with what a nested query says to each row beside it: EXISTS, `arguments` IN, or its one value.

    The nested query may read the input's attributes in the conditions of its Filters. `strict` where only a true
    answer lets the row pass, so that NULL is as good as false.
    """

    input: Plan
    column: Attribute
    kind: LookupKind
    query: Plan
    arguments: tuple[Expr, ...] = ()
    strict: bool = False

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The input's and the answer."""
        return (*self.input.columns, self.column)


@dataclass(frozen=True, slots=True)
class Unnest:
    """A row of its input for each element of an array of that row."""

    input: Plan
    array: Expr
    column: Attribute

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The input's and the element."""
        return (*self.input.columns, self.column)


class SetKind(enum.Enum):
    """UNION without ALL is an Aggregate over UNION ALL."""

    UNION_ALL = "UNION ALL"
    INTERSECT = "INTERSECT"
    INTERSECT_ALL = "INTERSECT ALL"
    EXCEPT = "EXCEPT"
    EXCEPT_ALL = "EXCEPT ALL"


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Two relations of like columns; the sides' columns are those of the result, one to one, of the same types."""

    kind: SetKind
    left: Plan
    right: Plan
    columns: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """The first `count` rows after `offset` in `order`, texts such as `c3 DESC NULLS FIRST`."""

    input: Plan
    order: tuple[str, ...]
    count: int | None
    offset: int = 0

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """Those of its input."""
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Keyed:
    """The rows whose columns have the values of a row of `keys`, a relation that is not in the view (NULL is a value).

    Only upkeep makes these.
    """

    input: Plan
    keys: str
    pairs: tuple[tuple[Attribute, str], ...]

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """Those of its input."""
        return self.input.columns


Plan = Scan | Filter | Project | Join | OuterJoin | Aggregate | Window | Lookup | Unnest | SetOperation | Limit | Keyed
