"""How a view is kept up to date, and why: what `afterimage explain` says.

In: a ViewPlan. Out: a Verdict. Keeps true: it is read off the very plans that refreshes run, one for each relation as
if that alone had changed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jobs.plan.nodes import Attribute
from jobs.plan.view import ViewPlan
from jobs.plan.walk import relations
from jobs.upkeep.choice import replaced_by
from jobs.upkeep.first_rows import first_rows
from jobs.upkeep.narrow import Key, narrow, narrowed_scans
from jobs.upkeep.planning import Cost
from jobs.upkeep.refresh import Refresh, plan_refresh
from jobs.upkeep.tables import Tables


class Mode(enum.Enum):
    """How much of a view a change makes to be read again."""

    TALLIED = "tallied"
    INCREMENTAL = "incremental"
    PARTIAL = "partial"
    GATED = "gated"
    FULL = "full"


MEANING: Final[Mapping[Mode, str]] = {
    Mode.TALLIED: "changed rows are added to the results of their groups and taken from them",
    Mode.INCREMENTAL: "only rows that a change can touch are computed again",
    Mode.PARTIAL: "changes of some relations touch only some rows, changes of others all",
    Mode.GATED: "computed anew as a whole, but only after a change of a row that it reads",
    Mode.FULL: "computed anew as a whole after every change",
}
COSTS: Final[Mapping[Cost, str]] = {
    Cost.TALLIED: "tallied: the changed rows, and what they are joined with; of a group that may have lost its least or"
    " greatest value, all rows",
    Cost.FIRST_ROWS: "first rows: those that are stored, and those that changed; all rows where one falls behind",
    Cost.KEYED: "keyed: the affected keys come from the changed rows alone",
    Cost.FAN_OUT: "keyed, times the fan-out of a join",
    Cost.PARTITIONS: "keyed, all rows of touched window partitions",
    Cost.OLD_STATE: "keyed, old and new results of touched groups compared",
    Cost.EVERY_KEY_IF: "every key, if the nested query's result changes",
    Cost.EVERY_KEY: "every key: no equality leads from a changed row to the view's rows",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by` are the columns by which rows are replaced; of `by_key` only the rows of affected keys are read again."""

    mode: Mode
    by: tuple[Attribute, ...]
    costs: Mapping[str, Cost]
    by_key: frozenset[str]
    whole: frozenset[str]
    refresh: Refresh
    """What a change of all relations at once would run."""


def verdict(view: ViewPlan) -> Verdict:
    """How the view is kept up to date."""
    found = relations(view.root)
    tables, by = Tables(found), replaced_by(view)
    costs = {relation: _cost(view, tables, relation) for relation in sorted(found)}
    narrowed = narrow(view.root, {column: Key(column.sql) for column in by})
    by_key, whole = narrowed_scans(narrowed)
    mode = _mode(by, costs)
    if view.tally is not None:
        mode, costs = Mode.TALLIED, dict.fromkeys(costs, Cost.TALLIED)
    elif first_rows(view) is not None:
        costs = dict.fromkeys(costs, Cost.FIRST_ROWS)
    return Verdict(mode, by, costs, by_key, whole, plan_refresh(view, tables, found))


def _cost(view: ViewPlan, tables: Tables, relation: str) -> Cost:
    return plan_refresh(view, tables, {relation}).costs.get(relation, Cost.KEYED)


def _mode(by: tuple[Attribute, ...], costs: Mapping[str, Cost]) -> Mode:
    every = [cost for cost in costs.values() if cost >= Cost.EVERY_KEY_IF]
    if not by or all(cost is Cost.EVERY_KEY for cost in costs.values()):
        return Mode.GATED
    return Mode.PARTIAL if every else Mode.INCREMENTAL
