"""One view file while its queries are resolved: what they share, and what each stands in.

In: a file, the relations. Out: the values that the modules of a query hand each other. Keeps true: a name that WITH
gave is resolved where it was given, not where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.context import UNSUPPORTED, span
from jobs.declare.postgres_text import Rewriting
from jobs.declare.relations import Relation, Relations
from jobs.declare.rows import Rows
from jobs.declare.scopes import Field, Numbers
from jobs.declare.source import Source
from jobs.plan.nodes import Attribute, Plan
from jobs.plan.types import Typed


@dataclass(frozen=True, slots=True)
class Block:
    """A query's rows, and its columns in order with the nodes that they were written as.

    `literals` are columns that are a bare NULL or an untyped string.
    """

    plan: Plan
    fields: tuple[Field, ...]
    nodes: tuple[exp.Expr, ...]
    literals: Mapping[Attribute, Typed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Named:
    """A query of WITH, its columns' names if they are said, and what it stands in."""

    node: exp.Query
    columns: tuple[str, ...]
    around: Around


@dataclass(frozen=True, slots=True)
class Around:
    """What a query stands in: the rows of the query around it, and the names of WITH."""

    outer: Rows | None = None
    named: Mapping[str, Named] = field(default_factory=dict)


@dataclass(slots=True)
class Resolution:
    """`block` resolves a query; `read` are the relations that were named so far."""

    source: Source
    relations: Relations
    rewriting: Rewriting
    block: Callable[[Resolution, exp.Expr, Around], Block]
    numbers: Numbers = field(default_factory=Numbers)
    warnings: list[str] = field(default_factory=list)
    read: dict[str, Relation] = field(default_factory=dict)

    def refuse(self, node: exp.Expr, message: str, hint: str, code: str = UNSUPPORTED) -> ConfigError:
        """An error at a node's place."""
        start, length = span(node)
        return self.source.error(start, message, hint, code=code, length=length)

    def only(self, node: exp.Expr, allowed: frozenset[str], what: str, hint: str) -> None:
        """Refuse a node that has parts which nobody here would look at."""
        for name, value in node.args.items():
            if name not in allowed and value not in (None, False, [], ""):
                at = value[0] if isinstance(value, list) else value
                place = at if isinstance(at, exp.Expr) else node
                raise self.refuse(place, f"{what} is not supported with {name.strip('_').upper()} in views", hint)
