"""Which rows of a join a change can touch.

Inner: take the first changed input of which a row's part changed; those before it are in the new state, those after it
in the new state or touched. Outer: besides the pairs, a changed row's own row without a match, and that of each match
which may have lost or gained it. Inputs that are needed for no wanted value are left out: that only makes more rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobs.plan.nodes import Attribute, Equality, Expr, Join, OuterJoin, Plan
from jobs.plan.render import conjunction, listed, names, table, where
from jobs.upkeep.equalities import Equalities
from jobs.upkeep.levels import Level, level
from jobs.upkeep.planning import Columns, Cost, Planning


@dataclass(frozen=True, slots=True)
class _Side:
    """An input: which of its columns are wanted or compared, which of them its touched rows show, and which matter."""

    node: Plan
    want: Columns
    shown: Columns
    used: Columns

    @property
    def reduced(self) -> bool:
        return self.shown != self.want

    def touched(self, planning: Planning, columns: Columns) -> str:
        return planning.touched(self.node, columns, self.used)

    def now(self, planning: Planning, columns: Columns, rows: Plan) -> str:
        return f"SELECT {names(columns)} FROM {planning.now(rows)}"

    def both(self, planning: Planning, columns: Columns, rows: Plan) -> str:
        """Its rows now, and the touched ones, which have those that are gone."""
        return f"{self.now(planning, columns, rows)} UNION ALL {self.touched(planning, columns)}"


class _Met:
    """The rows of further inputs that meet touched rows of `start`, one input after the other."""

    def __init__(self, planning: Planning, start: _Side, conditions: Sequence[Expr]) -> None:
        self._near = planning.near
        self._conditions = [each for each in conditions if isinstance(each, Equality)]
        self._known = self._near.known(start.node, start.shown) if self._near is not None else {}

    def rows(self, side: _Side, *, alone: bool) -> Plan:
        """Those of `side` now; `alone` where only these count, so that their values lead on to other inputs."""
        if self._near is None or not self._known:
            return side.node
        plan, found = self._near.narrowed(side.node, self._known, self._conditions)
        self._known |= dict(found) if alone else {}
        return plan


def touched_join(planning: Planning, node: Join, wanted: Columns, used: Columns) -> str:
    """The rule of the inner join."""
    own = frozenset(node.columns)
    conditions = [each for each in node.conditions if each.reads <= own]
    read = frozenset(column for each in node.conditions for column in each.reads) & own
    sides = [_side(each, wanted, read, used, conditions) for each in node.inputs]
    changed = [side for side in sides if planning.is_changed(side.node)]
    changed.sort(key=lambda side: not side.reduced)
    terms = []
    for at, start in enumerate(changed):
        later = changed[at + 1 :]
        terms.append(_term(planning, start, sides, later, conditions, wanted))
    return " UNION ALL ".join(terms)


def _side(node: Plan, wanted: Columns, read: Columns, used: Columns, conditions: Sequence[Expr]) -> _Side:
    columns = frozenset(node.columns)
    must, want = wanted & columns, (wanted | read) & columns
    costly = frozenset(column for column in want if level(node, column) is Level.RESULT)
    return _Side(
        node, want, want - costly if _spared(must, costly, columns, conditions) else want, (used | want) & columns
    )


def _spared(must: Columns, costly: Columns, columns: Columns, conditions: Sequence[Expr]) -> bool:
    """Results are left out where the input is joined by an equality without them, or by none at all."""
    if not costly or must & costly:
        return False
    links = [
        each for each in conditions if isinstance(each, Equality) and each.reads & columns and each.reads - columns
    ]
    return not links or any(not each.reads & costly for each in links)


def _term(
    planning: Planning,
    start: _Side,
    sides: Sequence[_Side],
    later: Sequence[_Side],
    conditions: Sequence[Expr],
    wanted: Columns,
) -> str:
    """The rows of which the part in `start` is touched."""
    available = {side.node: side.shown if side is start or side in later else side.want for side in sides}
    kept = [each for each in conditions if each.reads <= frozenset().union(*available.values())]
    equal = Equalities(kept)
    known = {column: equal.known(column, start.shown) for column in wanted}
    missing = frozenset(column for column, same in known.items() if same is None)
    needed = _needed(planning, start, sides, kept, missing)
    shown = start.shown.union(*(available[side.node] for side in needed))
    tables = [table(start.touched(planning, start.shown))]
    met = _Met(planning, start, kept)
    for side in needed:
        rows = side.both if side in later else side.now
        tables.append(table(rows(planning, available[side.node], met.rows(side, alone=side not in later))))
    filters = [each for each in kept if each.reads <= shown]
    items = renamed(wanted, {column: same for column, same in known.items() if same is not None})
    return f"SELECT {items} FROM {', '.join(tables)}{where(filters)}"


def _needed(
    planning: Planning, start: _Side, sides: Sequence[_Side], conditions: Sequence[Expr], missing: Columns
) -> list[_Side]:
    """The inputs that have the missing columns, and those that lead from `start` to them."""
    paths: dict[int, list[_Side]] = {id(start): []}
    grown = True
    while grown:
        grown = False
        for side in sides:
            if id(side) not in paths and (path := _path(side, sides, conditions, paths)) is not None:
                paths[id(side)] = path
                grown = True
    needed: list[_Side] = []
    for side in sides:
        if side is start or not missing & side.want:
            continue
        if id(side) not in paths:
            planning.note(Cost.EVERY_KEY, start.node)
        for each in paths.get(id(side), [side]):
            if each not in needed:
                needed.append(each)
    if needed:
        planning.note(Cost.FAN_OUT, start.node)
    return needed


def _path(
    side: _Side, sides: Sequence[_Side], conditions: Sequence[Expr], paths: Mapping[int, list[_Side]]
) -> list[_Side] | None:
    """How the input is reached from those that are, over one condition."""
    for each in conditions:
        joined = [other for other in sides if each.reads & other.want]
        others = [other for other in joined if other is not side]
        if len(others) < len(joined) and others and all(id(other) in paths for other in others):
            led = [step for other in others for step in paths[id(other)]]
            return [*dict.fromkeys(led), side]
    return None


def renamed(wanted: Columns, known: Mapping[Attribute, Attribute]) -> str:
    """The wanted columns, each by the one that is known to be equal."""
    ordered = sorted(wanted, key=lambda column: column.id)
    same = {column: known.get(column, column) for column in ordered}
    return listed(
        same[column].sql if same[column] == column else f"{same[column].sql} AS {column.sql}" for column in ordered
    )


@dataclass(frozen=True, slots=True)
class _Turn:
    """A changed side of an outer join, the other one, and which of them keep rows without a match.

    `both`: of the other side the touched rows count, too.
    """

    start: _Side
    other: _Side
    both: bool
    start_kept: bool
    other_kept: bool


def touched_outer_join(planning: Planning, node: OuterJoin, wanted: Columns, used: Columns) -> str:
    """The rule of LEFT and FULL JOIN."""
    own = frozenset(node.columns)
    conditions = [each for each in node.conditions if each.reads <= own]
    read = frozenset(column for each in node.conditions for column in each.reads) & own
    left, right = (_side(each, wanted, read, used, conditions) for each in (node.left, node.right))
    changed = [side for side in (left, right) if planning.is_changed(side.node)]
    changed.sort(key=lambda side: not side.reduced)
    terms: list[str] = []
    for at, start in enumerate(changed):
        other = right if start is left else left
        turn = _Turn(start, other, other in changed[at + 1 :], start is left or node.full, other is left or node.full)
        terms += _outer_terms(planning, turn, conditions, wanted)
    return " UNION ALL ".join(terms)


def _outer_terms(planning: Planning, turn: _Turn, conditions: Sequence[Expr], wanted: Columns) -> Iterator[str]:
    start, other = turn.start, turn.other
    shown = other.shown if turn.both else other.want
    kept = [each for each in conditions if each.reads <= start.shown | shown]
    touched = table(start.touched(planning, start.shown))
    of_other = wanted & frozenset(other.node.columns)
    of_start = wanted - of_other
    equal = Equalities(kept)
    known = {column: same for column in of_other if (same := equal.known(column, start.shown)) is not None}
    if len(known) == len(of_other):
        # A NULL on this side matches nothing, so as a value of the other side it is one too many: no harm.
        pairs = touched
    else:
        planning.note(Cost.FAN_OUT if any(isinstance(each, Equality) for each in kept) else Cost.EVERY_KEY, start.node)
        known = {}
        met = _Met(planning, start, kept).rows(other, alone=not turn.both)
        rows = (other.both if turn.both else other.now)(planning, shown, met)
        pairs = f"{touched} JOIN {table(rows)} ON {conjunction(kept)}"
    yield f"SELECT {_items(wanted, known, frozenset())} FROM {pairs}"
    if turn.start_kept and of_other:
        yield f"SELECT {_items(wanted, {}, of_other)} FROM {touched}"
    if turn.other_kept and of_start:
        yield f"SELECT {_items(wanted, known, of_start)} FROM {pairs}"


def _items(wanted: Columns, known: Mapping[Attribute, Attribute], null: Columns) -> str:
    """The wanted columns, those of the side without a match as NULLs of their types."""
    items = []
    for column in sorted(wanted, key=lambda each: each.id):
        same = known.get(column, column)
        sql = f"CAST(NULL AS {column.type.spark})" if column in null else same.sql
        items.append(sql if sql == column.sql else f"{sql} AS {column.sql}")
    return listed(items)
