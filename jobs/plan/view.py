"""A declared view over any number of tables and views: its plan and what is known of it.

In: jobs.declare. Out: a frozen value for upkeep and explain. `outputs` are the plan's columns in the view's order, with
their Delta names in ViewSpec.columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.plan.nodes import Attribute, Plan


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
