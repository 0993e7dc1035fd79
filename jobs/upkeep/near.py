"""What a changed row is joined with, read by the changed rows' own values.

In: which values changed rows have, if they are at hand, and how scans are read by values. Out: plans of which only rows
that meet a changed one matter. Only a gain in speed: without values, plans stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.plan.nodes import Aggregate, Attribute, Expr, Filter, Plan, Project, Scan
from jobs.upkeep.narrow import Key, Narrowing, spread

Values = Callable[[str, str], Any]
"""Of a relation's column, all values that changed rows have or had; None where they are not at hand."""


@dataclass(frozen=True, slots=True)
class Near:
    """Of one refresh."""

    values: Values
    narrowing: Narrowing

    def known(self, node: Plan, columns: Iterable[Attribute]) -> dict[Attribute, Key]:
        """What is known of the columns of a node's touched rows."""
        found = {column: self._values(node, column) for column in columns}
        return {column: Key(None, values=values) for column, values in found.items() if values is not None}

    def narrowed(
        self, node: Plan, known: Mapping[Attribute, Key], conditions: Iterable[Expr]
    ) -> tuple[Plan, Mapping[Attribute, Key]]:
        """The rows that meet those of which this is known, and what is known of theirs."""
        return self.narrowing.narrow(node, spread(known, conditions))

    def _values(self, node: Plan, column: Attribute) -> Any:
        """Touched rows of these nodes are made of touched rows below, and of no others."""
        match node:
            case Scan():
                return self.values(node.relation, node.sources[node.columns.index(column)])
            case Filter():
                return self._values(node.input, column)
            case Aggregate():
                return self._values(node.input, column) if column in node.groups else None
            case Project():
                below = next(expr.attribute for made, expr in node.items if made == column)
                return self._values(node.input, below) if below is not None else None
            case _:
                return None
