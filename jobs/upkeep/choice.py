"""By which columns a view's rows are replaced.

Any columns are right; these are those whose affected values cost least: of the view's key where possible, else of all
that it shows. None where no column tells which rows a change can touch.
"""

from __future__ import annotations

from jobs.plan.nodes import Attribute, Plan, Project
from jobs.plan.view import ViewPlan
from jobs.upkeep.levels import Level, level


def replaced_by(view: ViewPlan) -> tuple[Attribute, ...]:
    """The columns by which rows are replaced."""
    root = view.root
    levels = {column: level(root, column) for column in view.outputs if not _is_constant(root, column)}
    key = [column for column in view.key if column in levels]
    free = [column for column, found in levels.items() if found is Level.FREE]
    cheapest = (
        [column for column in key if levels[column] is Level.FREE],
        free,
        [column for column in key if levels[column] is Level.PARTITION],
        [column for column, found in levels.items() if found is Level.PARTITION],
    )
    return tuple(next(filter(None, cheapest), ()))


def _is_constant(root: Plan, column: Attribute) -> bool:
    return isinstance(root, Project) and any(made == column and not expr.reads for made, expr in root.items)
