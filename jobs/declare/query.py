"""A view over any number of tables and views: from its text to a plan and a ViewSpec.

In: a file, its header, the relations. Out: a ViewSpec of kind QUERY with its ViewPlan. Keeps true: the plan
answers what Postgres answers to `postgres_sql`, value by value as text; its key is unique, proved or to be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from cdc.names import delta_columns
from jobs.declare.blocks import select_block
from jobs.declare.fingerprint import fingerprint
from jobs.declare.header import CODE as HEADER
from jobs.declare.header import Header
from jobs.declare.parse import Statement
from jobs.declare.postgres_text import Rewriting
from jobs.declare.pruning import pruned
from jobs.declare.query_keys import query_key
from jobs.declare.relations import KEY, Column, Relation, Relations, Text
from jobs.declare.resolution import Around, Block, Resolution
from jobs.declare.set_operations import set_block
from jobs.declare.shown import shown_names
from jobs.declare.source import Source
from jobs.declare.uniqueness import facts
from jobs.plan.nodes import Scan
from jobs.plan.render import quoted, render
from jobs.plan.types import printed
from jobs.plan.view import ViewPlan, with_tally
from jobs.plan.walk import relations, walk
from jobs.upkeep.planning import Cost
from jobs.upkeep.verdict import Mode, verdict
from sinks.spec import Kind, ViewSpec

_ROOT: Final = Around()
_TABLE: Final = "delta"
_PARENTHESES: Final = frozenset({"this"})


@dataclass(frozen=True, slots=True)
class DeclaredQuery:
    """A view, and what it is for the views that read it."""

    spec: ViewSpec
    relation: Relation


def declare_query(
    name: str, source: Source, statement: Statement, header: Header, relations: Relations
) -> DeclaredQuery:
    """The view of a query."""
    resolution = Resolution(source, relations, Rewriting(source, statement.tokens), resolve)
    block = resolve(resolution, statement.root, _ROOT)
    names = shown_names(resolution, block)
    deltas = delta_columns(names)
    outputs = tuple(each.attribute for each in block.fields)
    # A key may be settled by columns that the view does not have; so before they are gone.
    key, proof = query_key(resolution, header, block.plan, dict(zip(names, outputs, strict=True)))
    filled = facts(block.plan).filled
    nullable = [word for word, each in zip(names, outputs, strict=True) if each in key and each not in filled]
    _check_sinks(resolution, header, nullable)
    plan = ViewPlan(pruned(block.plan, outputs), outputs, key, proof, tuple(dict.fromkeys(resolution.warnings)))
    if header.refresh != "full":
        plan = with_tally(plan)
    if header.refresh == "incremental":
        _require_incremental(resolution, header, plan)
    spec = replace(_spec(name, resolution, header, plan, deltas), nullable_key=bool(nullable))
    columns = [
        Column(word, delta, each.attribute.type, each.attribute not in filled, None, each.c_collated)
        for word, delta, each in zip(names, deltas, block.fields, strict=True)
    ]
    return DeclaredQuery(spec, view_relation(spec, columns))


def _require_incremental(resolution: Resolution, header: Header, plan: ViewPlan) -> None:
    """The file wants to hear where a change costs more than what it touches."""
    found = verdict(plan)
    if found.mode in (Mode.TALLIED, Mode.INCREMENTAL):
        return
    entry = header.entries["refresh"]
    costly = [name for name, cost in found.costs.items() if found.mode is Mode.GATED or cost >= Cost.EVERY_KEY_IF]
    raise resolution.source.error(
        entry.value_at,
        f"the view is {found.mode.value}: a change in {', '.join(costly)} makes all of it be computed anew",
        "write auto, or link what is nested or joined by an equality, see docs/UPKEEP.md",
        code=HEADER,
        length=len(entry.value),
    )


def _check_sinks(resolution: Resolution, header: Header, nullable: Sequence[str]) -> None:
    """A document, an entry and a record of a topic have a name, which NULL is not."""
    other = next((option.name for option in header.sinks if option.name != _TABLE), None)
    if not nullable or other is None:
        return
    entry = header.entries["sinks"]
    raise resolution.source.error(
        entry.value_at,
        f"the key column {nullable[0]} may be NULL, which the sink {other} has no name for",
        f"leave NULL out (WHERE {nullable[0]} IS NOT NULL), or name it: coalesce({nullable[0]}, ..) AS {nullable[0]}",
        code=KEY,
        length=len(entry.value),
    )


def view_relation(spec: ViewSpec, columns: Sequence[Column]) -> Relation:
    """A view as others read it."""
    text = Text(spec.postgres_sql, spec.named)
    return Relation(spec.name, spec.name, tuple(columns), spec.key, text, None, spec.stopped, spec.fingerprint)


def resolve(resolution: Resolution, node: exp.Expr, around: Around) -> Block:
    """Any query."""
    if isinstance(node, exp.Select):
        return select_block(resolution, node, around)
    if isinstance(node, exp.SetOperation):
        return set_block(resolution, node, around)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
        resolution.only(node, _PARENTHESES, "a query in parentheses", "write it within them")
        return resolve(resolution, node.this, around)
    raise resolution.refuse(node, "this is not a SELECT", "a view is made of SELECT, UNION, INTERSECT and EXCEPT")


def _spec(name: str, resolution: Resolution, header: Header, plan: ViewPlan, deltas: Sequence[str]) -> ViewSpec:
    text = resolution.rewriting.text()
    key = tuple(deltas[plan.outputs.index(column)] for column in plan.key)
    read = tuple(sorted(relations(plan.root)))
    used = [resolution.read[each] for each in read]
    spark_sql = render(plan.root, quoted)
    return ViewSpec(
        name=name,
        kind=Kind.QUERY,
        schema="",
        table="",
        key=key,
        key_source=(),
        columns=tuple(deltas),
        postgres_sql=text.sql,
        named=text.named,
        spark_sql=spark_sql,
        sinks=header.sinks,
        fingerprint=fingerprint([text.sql, spark_sql, key, _types(plan), [each.fingerprint for each in used]]),
        file=resolution.source.name,
        stopped=next((each.stopped for each in used if each.stopped is not None), None),
        plan=plan,
        relations=read,
        max_affected=header.max_affected,
        refresh=header.refresh,
        hidden=plan.tally.names if plan.tally is not None else (),
        printed=printed((delta, each.type) for delta, each in zip(deltas, plan.outputs, strict=True)),
    )


def _types(plan: ViewPlan) -> list[list[str]]:
    """What the tables' columns are; another type is another view."""
    scans = [each for each in walk(plan.root) if isinstance(each, Scan)]
    return [[each.relation, column.name, column.type.name] for each in scans for column in each.columns]
