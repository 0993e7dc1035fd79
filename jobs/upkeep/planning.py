"""One planning of a refresh: which relations changed, the rule of each node, and what is worth telling.

In: changed relations. Out: SQL of touched rows. Keeps true: `touched(node, wanted, used)` has the `wanted` values of
every row of the node, old or new, that is not in both states alike in the `used` columns; it may have more, and twice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.plan.nodes import Attribute, Keyed, Plan
from jobs.plan.render import derived, names, table
from jobs.plan.walk import relations
from jobs.upkeep.near import Near
from jobs.upkeep.tables import State, Tables

Columns = frozenset[Attribute]
Rule = Callable[["Planning", Any, Columns, Columns], str]


class Cost(enum.IntEnum):
    """What a change of a relation costs beyond reading the changed rows, the least first."""

    TALLIED = -2
    FIRST_ROWS = -1
    KEYED = 0
    FAN_OUT = 1
    PARTITIONS = 2
    OLD_STATE = 3
    EVERY_KEY_IF = 4
    EVERY_KEY = 5


@dataclass(slots=True)
class Planning:
    """Rules write down in `costs` what they did for the changed relations below a node."""

    tables: Tables
    changed: frozenset[str]
    rules: Mapping[type, Rule]
    near: Near | None = None
    """How to read only what a changed row is joined with."""
    costs: dict[str, Cost] = field(default_factory=dict)
    before: set[str] = field(default_factory=set)

    def is_changed(self, node: Plan) -> bool:
        """Whether any relation below the node changed."""
        return not self.changed.isdisjoint(relations(node))

    def touched(self, node: Plan, wanted: Iterable[Attribute], used: Iterable[Attribute]) -> str:
        """The touched rows' `wanted` columns, by number."""
        asked = frozenset(wanted)
        return self.rules[type(node)](self, node, asked, frozenset(used) | asked)

    def note(self, cost: Cost, node: Plan) -> None:
        """A change of a relation below the node costs at least this."""
        for relation in self.changed & relations(node):
            self.costs[relation] = max(cost, self.costs.get(relation, Cost.KEYED))

    def now(self, node: Plan) -> str:
        """The node's rows as they are, as a table in FROM."""
        return derived(node, lambda relation: self.tables.name(relation, State.NOW))

    def was(self, node: Plan) -> str:
        """The node's rows as they were."""
        return derived(node, self.name_before)

    def name_before(self, relation: str) -> str:
        """What a relation's old state is called, which is the new one of those that did not change."""
        if relation not in self.changed:
            return self.tables.name(relation, State.NOW)
        self.before.add(relation)
        return self.tables.name(relation, State.BEFORE)

    def difference(self, node: Plan, wanted: Columns, used: Columns, by: Columns = frozenset()) -> str:
        """The rule of last resort: the rows of both states compared, those of the touched values of `by` if any."""
        self.note(Cost.OLD_STATE, node)
        if by:
            keys = f"(SELECT DISTINCT {names(by)} FROM {table(self.touched(node, by, used))})"
            node = Keyed(node, keys, tuple((column, column.sql) for column in sorted(by, key=lambda each: each.id)))
        was, now = (f"SELECT {names(used)} FROM {rows}" for rows in (self.was(node), self.now(node)))
        gone, come = (
            f"SELECT {names(wanted)} FROM {table(f'{one} EXCEPT ALL {other}')}"
            for one, other in ((was, now), (now, was))
        )
        return f"{gone} UNION ALL {come}"
