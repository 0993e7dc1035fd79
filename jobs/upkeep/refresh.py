"""What a refresh of a view runs, given which of its relations changed.

In: a ViewPlan, the changed relations. Out: Spark SQL over the names of jobs.upkeep.tables.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from jobs.plan.nodes import Attribute
from jobs.plan.view import ViewPlan
from jobs.upkeep.tables import Tables


@dataclass(frozen=True, slots=True)
class Refresh:
    """`affected` selects the affected values of the attributes `by` (none: the whole view may differ); `narrowed` the
    view's rows with these, once they are the relation KEYS; `full` all of the view's rows.

    Both select the outputs under their attributes' names. `before` are the relations whose old state is read.
    """

    by: tuple[Attribute, ...]
    affected: str | None
    narrowed: str | None
    full: str
    before: frozenset[str]


def plan_refresh(view: ViewPlan, tables: Tables, changed: Collection[str]) -> Refresh:
    """The SQL for a batch that changed these relations."""
    raise NotImplementedError
