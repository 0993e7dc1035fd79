"""The rows that a query has so far, and the translation of expressions over them.

In: nodes of a SELECT. Out: expressions that read the rows' attributes; nested queries become Lookups beside the rows.
Keeps true: each expression knows what it reads; a name means what it means in Postgres at that point of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.context import Context, Rule
from jobs.declare.functions import FUNCTIONS
from jobs.declare.literals import settle
from jobs.declare.operators import condition
from jobs.declare.scopes import Field, Numbers, Scope, unknown
from jobs.declare.source import Source
from jobs.declare.translate import COLUMN_PARTS, RULES
from jobs.plan.nodes import Attribute, Equality, Expr, Plan, Project
from jobs.plan.types import BOOL, Family, Typed

Translated = TypeVar("Translated")
IDENTICAL: Final = frozenset(
    {
        *(Family.BOOL, Family.INT, Family.TEXT, Family.UUID, Family.BYTEA),
        *(Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ),
    }
)
"""Types of which equal values are the same value: a float has two zeros, an undeclared numeric 1.0 and 1.00."""

BEYOND: Final = "it cannot stand here: compute it in a derived table, (SELECT ..) AS name, and use its column"


def is_identical(typed: Typed) -> bool:
    """Whether equal values of an expression print alike."""
    return typed.type.family in IDENTICAL or (typed.type.family is Family.DECIMAL and typed.type.fixed)


@dataclass(slots=True)
class Rows:
    """`plan` grows as nested queries and projections are added to it. `answers` are nodes that are computed already."""

    source: Source
    numbers: Numbers
    scope: Scope
    plan: Plan
    nested: Mapping[type[exp.Expr], Callable[[Rows, exp.Expr], Typed]]
    outer: Rows | None = None
    answers: dict[int, Typed] = field(default_factory=dict)
    check: Callable[[Rows, exp.Column, Field], Field] | None = None
    whole: Callable[[exp.Expr], Typed | None] | None = None
    groups: tuple[Attribute, ...] = ()
    """What GROUP BY groups these rows by, while aggregates over them are translated."""
    conjunct: exp.Expr | None = None
    """The condition at hand, if only its truth lets a row pass."""
    context: Context = field(init=False)
    _read: set[Attribute] = field(default_factory=set)

    def __post_init__(self) -> None:
        rules = {**RULES, exp.Column: Rule(self._column, COLUMN_PARTS, "a column")}
        for kind, translate in self.nested.items():
            plain = RULES.get(kind)
            parts = frozenset(kind.arg_types) if plain is None else plain.parts | {"query"}
            rules[kind] = Rule(self._nested(translate, plain), parts, plain.word if plain else "a nested query")
        self.context = Context(self.source, rules, FUNCTIONS, self._known, BEYOND)

    def typed(self, node: exp.Expr) -> tuple[Typed, frozenset[Attribute]]:
        """An expression, and what it reads."""
        return self.reading(lambda: self.context.translate(node))

    def reading(self, translate: Callable[[], Translated]) -> tuple[Translated, frozenset[Attribute]]:
        """What a translation reads."""
        before, self._read = self._read, set()
        try:
            return translate(), frozenset(self._read)
        finally:
            self._read |= before

    def passing(self, node: exp.Expr) -> Expr:
        """A condition that only lets a row pass."""
        self.conjunct = node.unnest()
        try:
            return self.condition(node)
        finally:
            self.conjunct = None

    def condition(self, node: exp.Expr) -> Expr:
        """A truth value; an Equality if it is one."""
        pair = self._equated(node)
        typed, reads = self.reading(lambda: Typed(condition(self.context, node), BOOL))
        return Equality(typed.sql, BOOL, reads, None, *pair) if pair is not None else as_expr(typed, reads)

    def _equated(self, node: exp.Expr) -> tuple[Attribute, Attribute] | None:
        node = node.unnest()
        if not isinstance(node, exp.EQ):
            return None
        sides = [side.unnest() for side in (node.this, node.expression)]
        if not all(isinstance(side, exp.Column) for side in sides):
            return None
        left, right = (as_expr(*self.typed(side)) for side in sides)
        if left.attribute is None or right.attribute is None or left.type != right.type:
            return None
        found = left.attribute, right.attribute
        return found if is_identical(Typed("", left.type)) and found[0] != found[1] else None

    def attribute(self, node: exp.Expr, name: str) -> Attribute:
        """A column with an expression's value: the one that it is, or a new one beside the rows."""
        typed, reads = self.typed(node)
        return self.beside(settle(typed), reads, name)

    def beside(self, typed: Typed, reads: frozenset[Attribute], name: str) -> Attribute:
        """A column with this value."""
        expr = as_expr(typed, reads)
        if expr.attribute is not None and expr.attribute in self.plan.columns:
            return expr.attribute
        found = self.numbers.new(name, expr.type)
        passing = ((column, Expr.of(column)) for column in self.plan.columns)
        self.plan = Project(self.plan, (*passing, (found, expr)))
        return found

    def translated_plainly(self, node: exp.Expr) -> Typed:
        """A node whose own rule does, though a nested query is among its operands."""
        return RULES[type(node)].translate(self.context, node)

    def read(self, attributes: Iterable[Attribute]) -> None:
        """Say that the expression at hand reads these."""
        self._read.update(attributes)

    def named(self, node: exp.Column) -> Field:
        """What a column node means here or in the outer query."""
        found = self.find(node)
        if found is None:
            raise unknown(self.context, node, [rows.scope for rows in self.and_outer()])
        return found

    def find(self, node: exp.Column) -> Field | None:
        """What a column node means, here or outside; None if nothing is called so."""
        found = self.scope.find(self.context, node)
        if found is not None:
            return found if self.check is None else self.check(self, node, found)
        return self.outer.find(node) if self.outer is not None else None

    def and_outer(self) -> Iterator[Rows]:
        """These rows, and those of the queries around."""
        yield self
        if self.outer is not None:
            yield from self.outer.and_outer()

    def _column(self, context: Context, node: exp.Expr) -> Typed:
        assert isinstance(node, exp.Column)
        found = self.named(node)
        if found.rule is not None and not _tests_null(node):
            raise context.refuse(
                node,
                f"column {found.name} arrives concealed ({found.rule}): a view over several tables cannot show it",
                "leave it out, or test it with IS NULL; or take its rule out of source.columns",
            )
        self._read.add(found.attribute)
        return found.typed

    def _known(self, node: exp.Expr) -> Typed | None:
        found = self.answers.get(id(node))
        if found is None and self.whole is not None:
            found = self.whole(node)
        if found is not None:
            self._read.update(column for column in self.plan.columns if column.sql == found.sql)
        return found

    def _nested(
        self, translate: Callable[[Rows, exp.Expr], Typed], plain: Rule | None
    ) -> Callable[[Context, exp.Expr], Typed]:
        def translated(context: Context, node: exp.Expr) -> Typed:
            if plain is not None and not holds_query(node):
                return plain.translate(context, node)
            return translate(self, node)

        return translated


def holds_query(node: exp.Expr) -> bool:
    """Whether a nested query is an operand of the node itself."""
    parts = (node.args.get(part) for part in ("this", "expression", "query"))
    return any(isinstance(part, (exp.Query, exp.Any, exp.All)) for part in parts)


def as_expr(typed: Typed, reads: frozenset[Attribute]) -> Expr:
    """A translation with what it reads; the attribute that it is, if it is one."""
    attribute = next((each for each in reads if each.sql == typed.sql and each.type == typed.type), None)
    return Expr(typed.sql, typed.type, reads, attribute)


def refused(rows: Rows, node: exp.Expr, message: str, hint: str) -> ConfigError:
    """The error that a node has no exact translation."""
    return rows.context.refuse(node, message, hint)


def _tests_null(node: exp.Column) -> bool:
    above = node.parent
    return isinstance(above, exp.Is) and isinstance(above.expression, exp.Null)
