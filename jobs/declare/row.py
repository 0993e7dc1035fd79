"""The one table that a row-wise view reads, and the columns that it takes from it.

In: column nodes. Out: Delta columns, typed. Keeps true: a name that the table does not have, or whose values arrive
concealed and would be computed with, is an error at its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from cdc.nearest import suggestion
from jobs.declare.context import UNKNOWN_COLUMN, UNKNOWN_TABLE, Context, only_shown, quote_column
from jobs.identifiers import identifier
from jobs.plan.types import Type, Typed


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of the table: its name in Delta, its type, and the rule that conceals it, if any."""

    delta: str
    type: Type
    rule: str | None = None


@dataclass(slots=True)
class Row:
    """The table in FROM: the words that may qualify a column, its columns by Postgres name, and those `used`."""

    qualifiers: frozenset[tuple[str, ...]]
    table: str
    columns: Mapping[str, RowColumn]
    used: set[str] = field(default_factory=set)

    def column(self, context: Context, node: exp.Expr) -> Typed:
        """A reference to a column of the table."""
        assert isinstance(node, exp.Column)
        self.check_qualifier(context, node)
        name = identifier(node.this)
        found = self.columns.get(name)
        if found is None:
            hint = suggestion(name, self.columns, what=f"columns of {self.table}")
            raise context.error(node.this, f"table {self.table} has no column {name}", hint, UNKNOWN_COLUMN)
        if found.rule is not None and not only_shown(node):
            raise context.refuse(
                node,
                f"column {name} arrives concealed ({found.rule}), so nothing can be computed from it",
                "select it as it is, or test it with IS NULL; or take its rule out of source.columns",
            )
        self.used.add(name)
        return Typed(quote_column(found.delta), found.type, column=name)

    def check_qualifier(self, context: Context, node: exp.Column) -> None:
        """What stands before a column's dot must be the table in FROM."""
        qualifier = tuple(identifier(node.args[part]) for part in ("catalog", "db", "table") if node.args.get(part))
        if qualifier and qualifier not in self.qualifiers:
            words = " or ".join(sorted(".".join(each) for each in self.qualifiers))
            hint = f"here it is called {words}"
            raise context.error(node, f"unknown table {'.'.join(qualifier)}", hint, UNKNOWN_TABLE)
