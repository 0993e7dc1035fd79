"""Which rows of a node a change can touch: the rules for nodes of one input, and for UNION and its like.

In: a planning, a node, the wanted and the used columns. Out: SQL. The proofs are in docs/UPKEEP.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Expr,
    Filter,
    Join,
    Keyed,
    Limit,
    Lookup,
    OuterJoin,
    Plan,
    Project,
    Scan,
    SetKind,
    SetOperation,
    Unnest,
    Window,
)
from jobs.plan.render import aliased, listed, names, quoted, table, where
from jobs.plan.types import Family
from jobs.upkeep.joins import touched_join, touched_outer_join
from jobs.upkeep.levels import Level, highest, level
from jobs.upkeep.lookups import touched_lookup
from jobs.upkeep.planning import Columns, Cost, Planning, Rule
from jobs.upkeep.tables import NEW, OLD, State


def ordered(columns: Columns) -> list[Attribute]:
    """By number, as every text here lists them."""
    return sorted(columns, key=lambda column: column.id)


def _scan(planning: Planning, node: Scan, wanted: Columns, used: Columns) -> str:
    """Rows that are equal in all used columns before and after are no change."""
    source = dict(zip(node.columns, node.sources, strict=True))
    changed = planning.tables.name(node.relation, State.CHANGED)
    same = [same_image(column, quoted(source[column])) for column in ordered(used)]
    both = f"{OLD} IS NOT NULL AND {NEW} IS NOT NULL"
    differ = f"NOT ({' AND '.join([both, *same])})"
    items = listed(f"r.{quoted(source[column])} AS {column.sql}" for column in ordered(wanted))
    images = f"SELECT explode(array({OLD}, {NEW})) AS r FROM {changed} WHERE {differ}"
    return f"SELECT {items} FROM {table(images)} WHERE r IS NOT NULL"


def same_image(column: Attribute, name: str) -> str:
    """Whether a changed row's column is what it was."""
    old, new = f"{OLD}.{name}", f"{NEW}.{name}"
    if column.type.family is Family.FLOAT:
        # 0 and -0 are equal and print differently.
        return f"CAST({old} AS STRING) <=> CAST({new} AS STRING)"
    return f"{old} <=> {new}"


def _filter(planning: Planning, node: Filter, wanted: Columns, used: Columns) -> str:
    """Conditions that ask for more than is wanted are left out; so are those on an outer query's rows."""
    cost = highest(node.input, wanted)
    kept = tuple(each for each in node.conditions if _costs_no_more(node.input, each, cost))
    read = frozenset(column for each in node.conditions for column in each.reads if column in node.columns)
    inner = wanted.union(*(each.reads for each in kept))
    return f"SELECT {names(wanted)} FROM {table(planning.touched(node.input, inner, used | read))}{where(kept)}"


def _costs_no_more(node: Plan, condition: Expr, cost: Level) -> bool:
    return condition.reads <= frozenset(node.columns) and highest(node, condition.reads) <= cost


def _project(planning: Planning, node: Project, wanted: Columns, used: Columns) -> str:
    made = dict(node.items)
    below = frozenset(node.input.columns)

    def reads(columns: Columns) -> Columns:
        return below & frozenset(read for column in columns for read in made[column].reads)

    items = listed(aliased(made[column].sql, column) for column in ordered(wanted))
    return f"SELECT {items} FROM {table(planning.touched(node.input, reads(wanted), reads(used)))}"


def _aggregate(planning: Planning, node: Aggregate, wanted: Columns, used: Columns) -> str:
    """Groups of touched rows; what is wanted of a group's results, its old and its new ones."""
    groups = frozenset(node.groups)
    if not wanted <= groups:
        by = frozenset(group for group in groups if level(node, group) < Level.RESULT)
        return planning.difference(node, wanted, used, by)
    below = frozenset(node.input.columns)
    read = frozenset(column for made, call in node.calls if made in used for column in call.reads if column in below)
    return planning.touched(node.input, wanted, groups | read)


def _window(planning: Planning, node: Window, wanted: Columns, used: Columns) -> str:
    """A row's results are a function of its partitions' rows: rows that changed, and all in partitions that did."""
    below = frozenset(node.input.columns)
    calls = [call for call in node.calls if call.column in used]
    read = (used & below).union(*((call.expr.reads | call.partition) & below for call in calls))
    if not wanted <= below:
        common = frozenset.intersection(*(call.partition for call in node.calls))
        by = frozenset(column for column in common if level(node, column) < Level.RESULT)
        return planning.difference(node, wanted, used, by)
    terms = [planning.touched(node.input, wanted, read)]
    for partition in {call.partition for call in calls}:
        if not wanted <= partition:
            terms.append(_in_partitions(planning, node.input, partition, wanted, read))
    return " UNION ALL ".join(terms)


def _in_partitions(planning: Planning, node: Plan, partition: Columns, wanted: Columns, read: Columns) -> str:
    if not partition:
        planning.note(Cost.EVERY_KEY, node)
        return f"SELECT {names(wanted)} FROM {planning.now(node)}"
    planning.note(Cost.PARTITIONS, node)
    keys = f"(SELECT DISTINCT {names(partition)} FROM {table(planning.touched(node, partition, read))})"
    rows = Keyed(node, keys, tuple((column, column.sql) for column in ordered(partition)))
    return f"SELECT {names(wanted)} FROM {planning.now(rows)}"


def _unnest(planning: Planning, node: Unnest, wanted: Columns, used: Columns) -> str:
    array = node.array.reads & frozenset(node.input.columns)
    own = {node.column}
    inner = planning.touched(node.input, (wanted - own) | array, (used - own) | array)
    rows = f"SELECT *, explode({node.array.sql}) AS {node.column.sql} FROM {table(inner)}"
    # Elements that are in both states are more than needed, and do no harm.
    return f"SELECT {names(wanted)} FROM {table(rows)}"


def _set_operation(planning: Planning, node: SetOperation, wanted: Columns, used: Columns) -> str:
    """What is there of a value is settled by the rows of both sides that have it."""
    compared = used if node.kind is SetKind.UNION_ALL else frozenset(node.columns)
    terms = []
    for side in (node.left, node.right):
        if planning.is_changed(side):
            own = dict(zip(node.columns, side.columns, strict=True))
            inner = planning.touched(side, {own[column] for column in wanted}, {own[column] for column in compared})
            items = listed(aliased(own[column].sql, column) for column in ordered(wanted))
            terms.append(f"SELECT {items} FROM {table(inner)}")
    return " UNION ALL ".join(terms)


def _limit(planning: Planning, node: Limit, wanted: Columns, used: Columns) -> str:
    if not wanted:
        return planning.touched(node.input, (), node.columns)
    return planning.difference(node, wanted, used)


def _keyed(planning: Planning, node: Keyed, wanted: Columns, used: Columns) -> str:
    return planning.touched(node.input, wanted, used)


RULES: Final[Mapping[type, Rule]] = {
    Scan: _scan,
    Filter: _filter,
    Project: _project,
    Join: touched_join,
    OuterJoin: touched_outer_join,
    Aggregate: _aggregate,
    Window: _window,
    Lookup: touched_lookup,
    Unnest: _unnest,
    SetOperation: _set_operation,
    Limit: _limit,
    Keyed: _keyed,
}
