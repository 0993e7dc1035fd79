"""What is unique in a plan's rows: keys, and which columns settle which others.

In: a plan. Out: Facts. Keeps true: a key holds for every content of the tables, NULL being a value like any other;
where nothing can be proved there is no key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from jobs.declare.facts import Attributes, Facts, Key, minimal
from jobs.declare.nulls import is_filled, never_null
from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Equality,
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
from jobs.plan.types import Family

KEYS_MAX: Final = 16


def facts(node: Plan) -> Facts:
    """What holds for the node's rows."""
    return _FACTS[type(node)](node)


def _scan(node: Scan) -> Facts:
    key = frozenset(node.key)
    filled = frozenset(column for column in node.columns if not column.nullable)
    return Facts((Key(key, f"the key of {node.relation}"),), ((key, frozenset(node.columns)),), filled)


def _filter(node: Filter) -> Facts:
    return _conditioned(facts(node.input), node.conditions)


def _lookup(node: Lookup) -> Facts:
    return _beside(facts(node.input), node.input, {node.column})


def _limit(node: Limit) -> Facts:
    found = facts(node.input)
    return Facts((Key(frozenset(), "LIMIT 1"),), found.settles, found.filled) if node.count == 1 else found


def _conditioned(found: Facts, conditions: Sequence[Expr]) -> Facts:
    filled = found.filled | {column for each in conditions for column in _never_null(each)}
    return Facts(found.keys, (*found.settles, *_settled(conditions)), filled)


def _settled(conditions: Iterable[Expr]) -> Iterator[tuple[Attributes, Attributes]]:
    for each in conditions:
        if isinstance(each, Equality):
            assert each.left is not None
            assert each.right is not None
            yield frozenset({each.left}), frozenset({each.right})
            yield frozenset({each.right}), frozenset({each.left})
        elif (column := constant(each)) is not None:
            yield frozenset(), frozenset({column})


def constant(condition: Expr) -> Attribute | None:
    """The column that a condition sets to one value: `(c3 = 7)`."""
    if len(condition.reads) != 1:
        return None
    (column,) = condition.reads
    if column.type.family is Family.FLOAT:
        # It has two zeros.
        return None
    if condition.sql == f"({column.sql} IS NULL)":
        return column
    start = f"({column.sql} = "
    rest = condition.sql[len(start) :]
    is_so = condition.sql.startswith(start) and column.sql not in rest and " AND " not in rest and " OR " not in rest
    return column if is_so else None


def _never_null(condition: Expr) -> Attributes:
    if isinstance(condition, Equality):
        return condition.reads
    column = constant(condition)
    if column is None or condition.sql.endswith(" IS NULL)"):
        return never_null(condition)
    return frozenset({column})


def _join(node: Join) -> Facts:
    sides = [facts(each) for each in node.inputs]
    keys = [_together(each) for each in product(*(side.keys for side in sides))][:KEYS_MAX]
    settles = tuple(each for side in sides for each in side.settles)
    filled = frozenset[Attribute]().union(*(side.filled for side in sides))
    return _conditioned(Facts(tuple(keys), settles, filled), node.conditions)


def _together(keys: Sequence[Key]) -> Key:
    columns = frozenset[Attribute]().union(*(key.columns for key in keys))
    return Key(columns, " and ".join(dict.fromkeys(key.why for key in keys)))


def _outer_join(node: OuterJoin) -> Facts:
    left, right = facts(node.left), facts(node.right)
    if node.full:
        return _full_join(left, right)
    given = {column for each in node.conditions for column in each.reads} & set(node.left.columns)
    # What the left row settles of its matches: at most one of them, if a key is among it.
    only = _conditioned(right, [each for each in node.conditions if _links(each, given) or constant(each)])
    reached = only.closure(given)
    # Of one left row there are either matches, which agree in what it settles, or one row without a match.
    rests = tuple(Key(frozenset(key.columns - reached), key.why) for key in right.keys)
    # An unmatched row has NULLs: only with a column that is never NULL do rows that agree agree in the rest.
    kept = tuple(each for each in right.settles if each[0] & right.filled)
    settles = [*left.settles, *kept]
    single = next((key for key in rests if not key.columns), None)
    if single is not None:
        settles += [(key.columns, frozenset(node.right.columns)) for key in left.keys]
    keys = left.keys if single is not None else tuple(_together(pair) for pair in product(left.keys, rests))
    return Facts(keys[:KEYS_MAX], tuple(settles), left.filled)


def _links(condition: Expr, given: Iterable[Attribute]) -> bool:
    return isinstance(condition, Equality) and bool(condition.reads & set(given))


def _full_join(left: Facts, right: Facts) -> Facts:
    pairs = product(left.keys, right.keys)
    keys = [_together(pair) for pair in pairs if pair[0].columns & left.filled and pair[1].columns & right.filled]
    settles = [each for side in (left, right) for each in side.settles if each[0] & side.filled]
    return Facts(tuple(keys[:KEYS_MAX]), tuple(settles))


def _project(node: Project) -> Facts:
    found = facts(node.input)
    settles, filled = list(found.settles), set(found.filled)
    for column, expr in node.items:
        if expr.attribute == column:
            continue
        settles.append((expr.reads, frozenset({column})))
        if expr.attribute is not None or _keeps_apart(expr):
            settles.append((frozenset({column}), expr.reads))
            filled |= {column} if expr.attribute in found.filled else set()
        if is_filled(expr, found.filled):
            filled.add(column)
    return Facts(found.keys, tuple(settles), frozenset(filled))


def _keeps_apart(expr: Expr) -> bool:
    """Whether different values of the one column that it reads stay different: an integer as a wider one or as text."""
    if len(expr.reads) != 1:
        return False
    (column,) = expr.reads
    wider = expr.type.family is Family.INT and expr.type.width > column.type.width
    is_so = column.type.family is Family.INT and (wider or expr.type.family is Family.TEXT)
    return is_so and expr.sql == f"CAST({column.sql} AS {expr.type.spark})"


def _aggregate(node: Aggregate) -> Facts:
    found = facts(node.input)
    groups = frozenset(node.groups)
    why = "one row" if not groups else "GROUP BY" if node.calls else "DISTINCT"
    # Rows of the input that agree on a key of it are one row, in one group.
    keys = [Key(groups, why), *(key for key in found.keys if key.columns <= groups)]
    return Facts(tuple(keys), (*_within(found, groups), (groups, frozenset(node.columns))), found.filled & groups)


def _within(found: Facts, columns: Attributes) -> Iterator[tuple[Attributes, Attributes]]:
    for given, _ in found.settles:
        if given <= columns:
            yield given, frozenset(found.closure(given) & columns)


def _window(node: Window) -> Facts:
    found = _beside(facts(node.input), node.input, {call.column for call in node.calls})
    numbered = [
        Key(call.partition | {call.column}, "row_number()")
        for call in node.calls
        if call.expr.sql.startswith("CAST(row_number()")
    ]
    return Facts((*found.keys, *numbered), found.settles, found.filled)


def _beside(found: Facts, node: Plan, columns: Iterable[Attribute]) -> Facts:
    """With columns that each whole row settles."""
    more = frozenset(columns)
    givens = [key.columns for key in found.keys] or [frozenset(node.columns)]
    return Facts(found.keys, (*found.settles, *((given, more) for given in givens)), found.filled)


def _set_operation(node: SetOperation) -> Facts:
    whole = frozenset(node.columns)
    if node.kind is SetKind.UNION_ALL:
        return Facts(_apart(node))
    left = dict(zip(node.left.columns, node.columns, strict=True))
    keys = tuple(
        Key(frozenset(left[column] for column in key.columns), key.why)
        for key in facts(node.left).keys
        if key.columns <= set(left)
    )
    distinct = node.kind in (SetKind.EXCEPT, SetKind.INTERSECT)
    return Facts((*keys, Key(whole, node.kind.value)) if distinct else keys)


def _apart(node: SetOperation) -> tuple[Key, ...]:
    """The keys of two relations of which some column says from which of them a row is."""
    values = [_values(side) for side in (node.left, node.right)]
    marks = [
        column
        for column, left, right in zip(node.columns, node.left.columns, node.right.columns, strict=True)
        if (here := values[0].get(left)) and (there := values[1].get(right)) and not here & there
    ]
    sides = []
    for side in (node.left, node.right):
        out = dict(zip(side.columns, node.columns, strict=True))
        found = facts(side)
        key = minimal(found, side.columns)
        sides.append(None if key is None else Key(frozenset(out[column] for column in key[0]), key[1]))
    left_key, right_key = sides
    if not marks or left_key is None or right_key is None:
        return ()
    return (Key(left_key.columns | right_key.columns | {marks[0]}, f"UNION ALL told apart by {marks[0].name}"),)


def _values(node: Plan) -> dict[Attribute, frozenset[str]]:
    """The columns that hold one of a few constants, with these."""
    if isinstance(node, SetOperation):
        sides = [(side, _values(side)) for side in (node.left, node.right)]
        found: dict[Attribute, frozenset[str]] = {}
        for at, column in enumerate(node.columns):
            texts = [values.get(side.columns[at]) for side, values in sides]
            if texts[0] is not None and texts[1] is not None:
                found[column] = texts[0] | texts[1]
        return found
    if isinstance(node, Project):
        inner = _values(node.input)
        found = {column: frozenset({expr.sql}) for column, expr in node.items if not expr.reads and _literal(expr)}
        return found | {
            c: inner[e.attribute] for c, e in node.items if e.attribute is not None and e.attribute in inner
        }
    return {}


def _literal(expr: Expr) -> bool:
    """Two different texts are two different values."""
    return expr.sql.isdigit() or (expr.sql.startswith("'") and "\\" not in expr.sql)


_FACTS: Final[Mapping[type, Callable[[Any], Facts]]] = {
    Scan: _scan,
    Filter: _filter,
    Project: _project,
    Join: _join,
    OuterJoin: _outer_join,
    Aggregate: _aggregate,
    Window: _window,
    Lookup: _lookup,
    Unnest: lambda _: Facts(),
    SetOperation: _set_operation,
    Limit: _limit,
    Keyed: lambda node: facts(node.input),
}
