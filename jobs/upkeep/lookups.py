"""Which rows a change inside a nested query can touch.

What the query says to an outer row depends on that row and on the inner rows that it is linked with. So only rows are
touched that are linked with a touched inner row. Parts of a link may be left out: that only makes more rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.plan.nodes import Attribute, Equality, Expr, Filter, Join, Limit, Lookup, LookupKind, Plan, Project, Window
from jobs.plan.render import answer, conjunction, names, table
from jobs.plan.types import BOOL
from jobs.plan.walk import inputs, outer_reads
from jobs.upkeep.equalities import Equalities
from jobs.upkeep.joins import renamed
from jobs.upkeep.levels import Level, level
from jobs.upkeep.planning import Columns, Cost, Planning
from jobs.upkeep.tables import State


@dataclass(frozen=True, slots=True)
class Linked:
    """The inner rows, `core`, which read nothing from outside, and what links an outer row with one of them.

    That is all `conditions`, and one of the `alternatives` if there are any: a join by OR would try each with each.
    """

    core: Plan
    conditions: tuple[Expr, ...]
    alternatives: tuple[Expr, ...] = ()

    @property
    def links(self) -> tuple[tuple[Expr, ...], ...]:
        """The ways to be linked."""
        return tuple((*self.conditions, each) for each in self.alternatives) or (self.conditions,)


def touched_lookup(planning: Planning, node: Lookup, wanted: Columns, used: Columns) -> str:
    """Rows that changed themselves, and those whose answer may have."""
    if node.column in wanted:
        return planning.difference(node, wanted, used)
    outside = frozenset(node.input.columns)
    asked = node.column in used
    own = outer_reads(node.query).union(*(each.reads for each in node.arguments)) if asked else frozenset()
    terms = []
    if planning.is_changed(node.input):
        terms.append(planning.touched(node.input, wanted, (used | own) & outside))
    if asked and planning.is_changed(node.query):
        terms.append(_by_answer(planning, node, wanted))
    return " UNION ALL ".join(terms) or f"SELECT {names(wanted)} FROM {planning.now(node.input)} WHERE FALSE"


def _by_answer(planning: Planning, node: Lookup, wanted: Columns) -> str:
    linked = links(node)
    if linked is not None:
        return _by_link(planning, node, linked, wanted)
    if node.kind is not LookupKind.IN and not outer_reads(node.query):
        return _by_flip(planning, node, wanted)
    planning.note(Cost.EVERY_KEY, node.query)
    inner = planning.touched(node.query, (), node.query.columns)
    return f"SELECT {names(wanted)} FROM {planning.now(node.input)} WHERE EXISTS ({inner})"


def _by_flip(planning: Planning, node: Lookup, wanted: Columns) -> str:
    """A query that reads nothing from outside says the same to all rows: the old answer and the new one."""
    planning.note(Cost.EVERY_KEY_IF, node.query)
    now = answer(node, lambda relation: planning.tables.name(relation, State.NOW))
    was = answer(node, planning.name_before)
    flipped = f"SELECT 1 FROM {table(f'SELECT {was} AS was, {now} AS now')} WHERE NOT (was <=> now)"
    return f"SELECT {names(wanted)} FROM {planning.now(node.input)} WHERE EXISTS ({flipped})"


def _by_link(planning: Planning, node: Lookup, linked: Linked, wanted: Columns) -> str:
    return " UNION ALL ".join(_linked_by(planning, node, linked.core, each, wanted) for each in linked.links)


def _linked_by(planning: Planning, node: Lookup, core: Plan, conditions: tuple[Expr, ...], wanted: Columns) -> str:
    inside = frozenset(core.columns)
    read = frozenset(column for each in conditions for column in each.reads) & inside
    # All that the query reads of its rows matters, not only what links them.
    inner = table(planning.touched(core, read, inside))
    equal = Equalities(conditions)
    known = {column: same for column in wanted if (same := equal.known(column, read)) is not None}
    if known.keys() == wanted:
        return f"SELECT {renamed(wanted, known)} FROM {inner}"
    outer = frozenset(column for each in conditions for column in each.reads) - inside
    planning.note(Cost.FAN_OUT, node.query)
    rows = table(f"SELECT {names(wanted | outer)} FROM {planning.now(node.input)}")
    return f"SELECT {names(wanted)} FROM {inner} JOIN {rows} ON {conjunction(conditions)}"


def links(node: Lookup) -> Linked | None:
    """How the query's rows are linked with the outer ones; None where it can't be told."""
    found = _core(node)
    if found is None:
        return None
    core, conditions = found
    inside, outside = frozenset(core.columns), frozenset(node.input.columns)
    usable = [each for each in conditions if each.reads <= inside | outside and each.reads & outside]
    usable = [each for each in usable if all(level(core, column) < Level.RESULT for column in each.reads & inside)]
    matches = _matches(node, core, inside)
    if len(matches) == 1:
        return Linked(core, tuple(usable), matches[0])
    # Of several columns, all ways to meet a NULL would be many.
    usable += [_either(each) for each in matches]
    return Linked(core, tuple(usable)) if usable else None


def _core(node: Lookup) -> tuple[Plan, tuple[Expr, ...]] | None:
    """The lowest relation above which nothing is read from outside but in one Filter's or Join's conditions."""
    at: Plan = node.query
    if not outer_reads(at):
        return at, ()
    while True:
        own = frozenset(at.columns)
        if isinstance(at, Filter) and not outer_reads(at.input):
            return at.input, at.conditions
        if isinstance(at, Join) and not any(map(outer_reads, at.inputs)):
            inner = tuple(each for each in at.conditions if each.reads <= own)
            return Join(at.inputs, inner), tuple(each for each in at.conditions if not each.reads <= own)
        below = inputs(at)
        if len(below) != 1:
            return None
        at = below[0]


def _matches(node: Lookup, core: Plan, inside: Columns) -> list[tuple[Expr, ...]]:
    """What IN adds: the argument equals the row's value, or either is NULL where that is not the same as false."""
    # Which values are in the result depends on other rows, too, where these are ranked.
    ranked = any(isinstance(each, Limit | Window) for each in _above(node.query, core))
    if node.kind is not LookupKind.IN or ranked:
        return []
    found: list[tuple[Expr, ...]] = []
    for argument, column in zip(node.arguments, node.query.columns, strict=True):
        inner = _origin(node.query, column, core)
        if inner is None or inner not in inside or level(core, inner) is Level.RESULT:
            continue
        if not argument.reads <= frozenset(node.input.columns):
            continue
        found.append(_match(argument, inner, strict=node.strict))
    return found


def _match(argument: Expr, inner: Attribute, *, strict: bool) -> tuple[Expr, ...]:
    """The ways in which a row's value matters for the argument."""
    reads = argument.reads | {inner}
    sql = f"{argument.sql} = {inner.sql}"
    same = Expr(sql, BOOL, reads)
    if argument.attribute is not None and argument.type == inner.type:
        same = Equality(sql, BOOL, reads, left=argument.attribute, right=inner)
    if strict:
        return (same,)
    of_null = (
        Expr(f"{argument.sql} IS NULL", BOOL, argument.reads),
        Expr(f"{inner.sql} IS NULL", BOOL, frozenset({inner})),
    )
    return same, *of_null


def _either(ways: tuple[Expr, ...]) -> Expr:
    reads = frozenset[Attribute]().union(*(each.reads for each in ways))
    return ways[0] if len(ways) == 1 else Expr(" OR ".join(each.sql for each in ways), BOOL, reads)


def _above(query: Plan, core: Plan) -> list[Plan]:
    found: list[Plan] = []
    at = query
    while at is not core and len(inputs(at)) == 1:
        found.append(at)
        at = inputs(at)[0]
    return found


def _origin(query: Plan, column: Attribute, core: Plan) -> Attribute | None:
    """The core's column that the query's column is, as it stands."""
    for each in _above(query, core):
        if isinstance(each, Project):
            made = next((expr for own, expr in each.items if own == column), None)
            if made is None or made.attribute is None:
                return None
            column = made.attribute
    return column
