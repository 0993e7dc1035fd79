"""What a twin is declared as: the view under its other name, over the twins of what is loaded with it.

In: a view, and the views that are shown together with it. Out: the twin, which answers the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from jobs.plan.renamed import renamed
from jobs.twins import twin_name
from sinks.spec import ViewSpec


def twin_of(spec: ViewSpec, views: Collection[str]) -> ViewSpec:
    """The same view under its other name, reading the twins of those that are among these."""
    names = {name: twin_name(name) for name in spec.relations if name in views}
    plan = renamed(spec.plan, names) if names else spec.plan
    relations = tuple(names.get(name, name) for name in spec.relations)
    return replace(spec, name=twin_name(spec.name), relations=relations, plan=plan)
