"""A declared view over any number of tables and views: its plan and what is known of it.

In: jobs.declare. Out: a frozen value for upkeep and explain. `outputs` are the plan's columns in the view's order, with
their Delta names in ViewSpec.columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.plan.nodes import Attribute, Plan
from jobs.plan.tally import Tally, tallied


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """`key` is unique among the view's rows: proved, or declared and checked at every refresh (`key_proof` says which).

    `warnings` are for people: what makes the content ambiguous, for instance.
    """

    root: Plan
    outputs: tuple[Attribute, ...]
    key: tuple[Attribute, ...]
    key_proof: str | None
    warnings: tuple[str, ...] = ()
    tally: Tally | None = None
    """What is kept of each group beside the outputs, if its results can be brought up to date by changed rows alone."""

    @property
    def stored(self) -> tuple[Attribute, ...]:
        """The columns of its table: the outputs, and what no reader is shown."""
        return self.outputs if self.tally is None else (*self.outputs, *self.tally.hidden)


def with_tally(view: ViewPlan) -> ViewPlan:
    """The view with what is kept of each group, where that can be and each group has one row."""
    found = tallied(view.root, view.outputs) if view.key_proof is not None else None
    return replace(view, root=found[0], tally=found[1]) if found is not None else view
