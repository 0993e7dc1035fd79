"""What `afterimage explain` says of a view over several relations: its mode, what changes cost, what is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.plan.render import derived, listed, quoted
from jobs.plan.view import ViewPlan
from jobs.upkeep.verdict import COSTS, MEANING, Mode, Verdict, verdict
from sinks.spec import ViewSpec


def spark_sql(spec: ViewSpec) -> str:
    """The view as Spark computes it, with the relations' own names."""
    plan: ViewPlan = spec.plan
    pairs = zip(plan.outputs, spec.columns, strict=True)
    items = listed(f"{column.sql} AS {quoted(name)}" for column, name in pairs)
    return f"SELECT {items} FROM {derived(plan.root, quoted)}"  # noqa: S608 - our own SQL


def described(spec: ViewSpec) -> dict[str, Any]:
    """All of it, for programs."""
    found = _verdict(spec)
    names = _names(spec)
    return {
        "mode": _shown_mode(spec, found).value,
        "refresh": spec.refresh,
        "replaced_by": [names[column.id] for column in found.by],
        "key_proof": spec.plan.key_proof,
        "changes": {relation: cost.name.lower() for relation, cost in found.costs.items()},
        "scans_narrowed": sorted(found.by_key),
        "scans_whole": sorted(found.whole),
        "warnings": list(spec.plan.warnings),
    }


def lines(spec: ViewSpec) -> Iterator[str]:
    """All of it, for people."""
    found = _verdict(spec)
    plan: ViewPlan = spec.plan
    names = _names(spec)
    yield f"mode     {_mode(spec, found)}"
    proof = plan.key_proof or "declared; checked at every refresh"
    yield f"key      {', '.join(spec.key) or 'none: one row'}   {proof}"
    if found.by:
        yield f"replaced by ({', '.join(names[column.id] for column in found.by)})"
    width = max(map(len, found.costs), default=0)
    for relation, cost in found.costs.items():
        yield f"a change in {relation.ljust(width)} -> {COSTS[cost]}"
    yield f"scans narrowed by key: {_joined(found.by_key)}; read whole: {_joined(found.whole)}"
    for warning in plan.warnings:
        yield f"warning: {warning}"


def _verdict(spec: ViewSpec) -> Verdict:
    return verdict(spec.plan)


def _mode(spec: ViewSpec, found: Verdict) -> str:
    mode = _shown_mode(spec, found)
    return f"{mode.value}: {MEANING[mode]}"


def _shown_mode(spec: ViewSpec, found: Verdict) -> Mode:
    return Mode.FULL if spec.refresh == "full" else found.mode


def _names(spec: ViewSpec) -> dict[int, str]:
    return {column.id: name for column, name in zip(spec.plan.outputs, spec.columns, strict=True)}


def _joined(relations: frozenset[str]) -> str:
    return ", ".join(sorted(relations)) or "none"
