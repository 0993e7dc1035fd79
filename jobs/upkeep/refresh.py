"""What a refresh of a view runs, given which of its relations changed.

In: a ViewPlan, the changed relations. Out: Spark SQL over the names of jobs.upkeep.tables. Keeps true: the view's rows
without those of the affected values, and with the narrowed ones, are the view's rows now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jobs.plan.nodes import Attribute, Keyed, Plan
from jobs.plan.render import NameOf, derived, listed, names, render, table
from jobs.plan.view import ViewPlan
from jobs.upkeep.affected import RULES
from jobs.upkeep.choice import replaced_by
from jobs.upkeep.narrow import Key, narrow
from jobs.upkeep.near import Near
from jobs.upkeep.planning import Cost, Planning
from jobs.upkeep.tables import KEYS, State, Tables


@dataclass(frozen=True, slots=True)
class Refresh:
    """`affected` selects the affected values of the attributes `by`; `narrowed` the view's rows that have these, once
    they are the relation KEYS; `full` all of the view's rows. The last two select what is stored by number, in order.

    Without `by` any row may differ, but none does where `affected` (which then selects nothing of worth) has no row.
    `before` are the relations whose old state `affected` reads; `costs` says what the change of each relation took.
    """

    by: tuple[Attribute, ...]
    affected: str
    narrowed: str | None
    full: str
    before: frozenset[str]
    costs: Mapping[str, Cost]


def plan_refresh(view: ViewPlan, tables: Tables, changed: Collection[str], near: Near | None = None) -> Refresh:
    """The SQL for a batch that changed these relations."""
    by = replaced_by(view)
    planning = Planning(tables, frozenset(changed), RULES, near)
    if not by:
        return _whole(view, planning, {})
    touched = planning.touched(view.root, by, view.stored)
    if Cost.EVERY_KEY in planning.costs.values():
        return _whole(view, Planning(tables, frozenset(changed), RULES), planning.costs)
    return Refresh(
        by=by,
        affected=f"SELECT DISTINCT {names(by)} FROM {table(touched)}",
        narrowed=_narrowed(view, tables, by),
        full=_full(view, tables),
        before=frozenset(planning.before),
        costs=planning.costs,
    )


def _whole(view: ViewPlan, planning: Planning, costs: Mapping[str, Cost]) -> Refresh:
    touched = planning.touched(view.root, (), view.stored)
    costs = dict.fromkeys(planning.changed, Cost.EVERY_KEY) | dict(costs)
    full, before = _full(view, planning.tables), frozenset(planning.before)
    return Refresh((), f"SELECT * FROM {table(touched)} LIMIT 1", None, full, before, costs)


def _full(view: ViewPlan, tables: Tables) -> str:
    rows = render(view.root, lambda relation: tables.name(relation, State.NOW))
    return f"SELECT {listed(column.sql for column in view.stored)} FROM {table(rows)}"


def _narrowed(view: ViewPlan, tables: Tables, by: tuple[Attribute, ...]) -> str:
    known = {column: Key(column.sql) for column in by}
    return keyed_sql(view, by, narrow(view.root, known), lambda relation: tables.name(relation, State.NOW))


def keyed_sql(view: ViewPlan, by: tuple[Attribute, ...], narrowed: Plan, name_of: NameOf) -> str:
    """The view's rows that have the values of KEYS, of a plan narrowed to these; narrowing is never all of it."""
    rows = Keyed(narrowed, KEYS, tuple((column, column.sql) for column in by))
    shown = listed(column.sql for column in view.stored)
    return f"SELECT {shown} FROM {derived(rows, name_of)}"
