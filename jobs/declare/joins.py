"""FROM as a whole: its items, joined.

In: a SELECT's FROM and joins. Out: one relation for each item between commas. Keeps true: RIGHT JOIN is LEFT with its
sides changed; a column of USING is called without a table, and stands once in `*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from jobs.declare.context import UNKNOWN_COLUMN, span
from jobs.declare.from_items import Item, from_item
from jobs.declare.operators import compare
from jobs.declare.resolution import Around, Resolution
from jobs.declare.rows import Rows, is_identical
from jobs.declare.scopes import AMBIGUOUS, Field, Scope
from jobs.identifiers import identifier
from jobs.plan.nodes import Attribute, Equality, Expr, Filter, Join, OuterJoin, Plan, Project
from jobs.plan.types import BOOL, Typed

_JOINS: Final = "supported: [INNER] JOIN, LEFT, RIGHT, FULL and CROSS JOIN, with ON or USING"
_KINDS: Final = frozenset({"", "INNER", "OUTER", "CROSS"})
_ON: Final = "move it to WHERE, or into a derived table"


def from_clause(resolution: Resolution, select: exp.Select, around: Around) -> Item:
    """All that FROM says."""
    first = select.args["from_"].this
    groups = [_with_joins(resolution, first, around)]
    for join in select.args.get("joins") or []:
        right = _with_joins(resolution, join.this, around)
        if _is_comma(resolution, join):
            groups.append(right)
        else:
            groups[-1] = _joined(resolution, groups[-1], right, join, around)
    if len(groups) == 1:
        return groups[0]
    plans = tuple(plan for group in groups for plan in _flat(group.plan))
    conditions = tuple(each for group in groups if isinstance(group.plan, Join) for each in group.plan.conditions)
    scope = groups[0].scope
    for group, join in zip(groups[1:], _commas(resolution, select), strict=True):
        scope = _both(resolution, scope, group.scope, join)
    return Item(Join(plans, conditions), scope)


def _commas(resolution: Resolution, select: exp.Select) -> Iterator[exp.Join]:
    return (join for join in select.args.get("joins") or [] if _is_comma(resolution, join))


def _flat(plan: Plan) -> tuple[Plan, ...]:
    return plan.inputs if isinstance(plan, Join) else (plan,)


def _with_joins(resolution: Resolution, node: exp.Expr, around: Around) -> Item:
    """An item, and the joins that belong to it alone: `a JOIN (b JOIN c ON ..) ON ..`."""
    if isinstance(node, exp.Subquery) and isinstance(node.this, (exp.Table, exp.Subquery)):
        if node.args.get("alias"):
            raise resolution.refuse(node, "a joined table with a name is not supported in views", "leave the name out")
        item = _with_joins(resolution, node.this, around)
    else:
        item = from_item(resolution, node, around)
    for join in node.args.get("joins") or []:
        item = _joined(resolution, item, _with_joins(resolution, join.this, around), join, around)
    return item


def _is_comma(resolution: Resolution, join: exp.Join) -> bool:
    if any(join.args.get(part) for part in ("kind", "side", "method", "on", "using")):
        return False
    start, _ = span(join.this)
    before = [token.token_type for token in resolution.rewriting.tokens if token.start < start]
    last = next(kind for kind in reversed(before) if kind in (TokenType.COMMA, TokenType.JOIN))
    if last is TokenType.JOIN:
        raise resolution.refuse(join, "a JOIN without ON", "write ON .. or USING (..), or CROSS JOIN")
    return True


def _joined(resolution: Resolution, left: Item, right: Item, join: exp.Join, around: Around) -> Item:
    kind, side = str(join.args.get("kind") or "").upper(), str(join.args.get("side") or "").upper()
    if join.args.get("method"):
        hint = "write USING (..): which columns are alike may change"
        raise resolution.refuse(join, f"{join.args['method']} JOIN is not supported in views", hint)
    if kind not in _KINDS or side not in ("", "LEFT", "RIGHT", "FULL"):
        raise resolution.refuse(join, f"{side} {kind} JOIN is not supported in views", _JOINS)
    resolution.only(join, frozenset({"this", "kind", "side", "on", "using"}), "a join", _JOINS)
    if (kind == "CROSS") == bool(join.args.get("on") or join.args.get("using")):
        raise resolution.refuse(join, "a JOIN without ON", "write ON .. or USING (..), or CROSS JOIN")
    scope = _both(resolution, left.scope, right.scope, join)
    rows = Rows(resolution.source, resolution.numbers, scope, Join((left.plan, right.plan), ()), {}, around.outer)
    using = join.args.get("using")
    if using:
        return _using(rows, left, right, join, side)
    conditions = tuple(map(rows.condition, conjuncts(join.args["on"]))) if join.args.get("on") else ()
    if side == "FULL" and not any(isinstance(each.unnest(), exp.EQ) for each in conjuncts(join.args["on"])):
        raise resolution.refuse(join, "Postgres joins FULL by an equality alone", "write FULL JOIN .. ON a.x = b.x")
    return Item(_plan(left.plan, right.plan, conditions, side), scope)


def _plan(left: Plan, right: Plan, conditions: tuple[Expr, ...], side: str) -> Plan:
    match side:
        case "LEFT":
            return OuterJoin(left, right, conditions)
        case "RIGHT":
            return OuterJoin(right, left, conditions)
        case "FULL":
            return OuterJoin(left, right, conditions, full=True)
    plans, own = (*_flat(left), *_flat(right)), (_own(left), _own(right))
    columns = {column for plan in plans for column in plan.columns}
    inner = tuple(each for each in conditions if each.reads <= columns)
    joined = Join(plans, (*own[0], *own[1], *inner))
    # What reads the query around stands in a Filter.
    rest = tuple(each for each in conditions if not each.reads <= columns)
    return Filter(joined, rest) if rest else joined


def _own(plan: Plan) -> tuple[Expr, ...]:
    return plan.conditions if isinstance(plan, Join) else ()


def _using(rows: Rows, left: Item, right: Item, join: exp.Join, side: str) -> Item:
    nodes = join.args["using"]
    pairs = [tuple(_one(rows, item, node) for item in (left, right)) for node in nodes]
    conditions = tuple(_equality(rows, node, *pair) for node, pair in zip(nodes, pairs, strict=True))
    plan = _plan(left.plan, right.plan, conditions, side)
    merged = []
    for node, (mine, other) in zip(nodes, pairs, strict=True):
        attribute = (other if side == "RIGHT" else mine).attribute
        if side == "FULL":
            plan, attribute = _either(rows, plan, mine.attribute, other.attribute)
        name = identifier(node)
        merged.append(Field(name, attribute, None, mine.c_collated or other.c_collated))
    names = {each.name for each in merged}
    rest = [each for each in rows.scope.visible if each.name not in names]
    return Item(plan, Scope(rows.scope.entries, (*merged, *rest)))


def _one(rows: Rows, item: Item, node: exp.Expr) -> Field:
    name = identifier(node)
    found = [each for each in item.scope.visible if each.name == name]
    if len(found) == 1:
        return found[0]
    what, code = ("is ambiguous", AMBIGUOUS) if found else ("is not on both sides", UNKNOWN_COLUMN)
    raise rows.context.error(node, f"column {name} {what}", "write ON a.x = b.x", code)


def _equality(rows: Rows, node: exp.Expr, left: Field, right: Field) -> Expr:
    if left.attribute.type != right.attribute.type or left.rule or right.rule:
        raise rows.context.refuse(node, "USING joins columns of one type in views", "write ON a.x = b.x")
    sql = compare(rows.context, node, left.typed, "=", right.typed)
    reads = frozenset({left.attribute, right.attribute})
    if is_identical(Typed("", left.attribute.type)):
        return Equality(sql, BOOL, reads, None, left.attribute, right.attribute)
    return Expr(sql, BOOL, reads)


def _either(rows: Rows, plan: Plan, left: Attribute, right: Attribute) -> tuple[Plan, Attribute]:
    """A column that is the left one, or where it is NULL the right one."""
    found = rows.numbers.new(left.name, left.type)
    expr = Expr(f"coalesce({left.sql}, {right.sql})", left.type, frozenset({left, right}))
    passing = ((column, Expr.of(column)) for column in plan.columns)
    return Project(plan, (*passing, (found, expr))), found


def _both(resolution: Resolution, left: Scope, right: Scope, node: exp.Expr) -> Scope:
    for entry in right.entries:
        for other in left.entries:
            if entry.words == other.words:
                word = ".".join(min(entry.words))
                raise resolution.refuse(
                    node, f"{word} stands twice in FROM", "give one another name: .. AS name", AMBIGUOUS
                )
    return Scope((*left.entries, *right.entries), (*left.visible, *right.visible))


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """What AND holds together at the top."""
    inner = node.unnest()
    if isinstance(inner, exp.And):
        yield from conjuncts(inner.this)
        yield from conjuncts(inner.expression)
    else:
        yield node
