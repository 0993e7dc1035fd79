"""GROUP BY and aggregates: the rows after them.

In: rows before, and the expressions of the select list, HAVING and ORDER BY. Out: rows of groups and results. Keeps
true: after GROUP BY a column is one of the groups, or one that a table's primary key among them settles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.aggregates import aggregate, average, is_average, require_identical
from jobs.declare.calls import aggregates
from jobs.declare.literals import settle
from jobs.declare.quotients import quotient
from jobs.declare.rows import Rows, as_expr
from jobs.declare.scopes import Field
from jobs.identifiers import identifier
from jobs.plan.nodes import Aggregate, Attribute, Expr
from jobs.plan.types import Type, Typed

UNGROUPED: Final = "VIEW_UNGROUPED"
_SETS: Final = "group by columns and expressions; several groupings are several views, or UNION ALL"
_CONSTANT: Final = (exp.Literal, exp.Boolean, exp.Null)


def is_grouped(select: exp.Select, nodes: Iterable[exp.Expr]) -> bool:
    """Whether a SELECT has one row for each group."""
    return bool(select.args.get("group") or select.args.get("having")) or any(map(_has_aggregate, nodes))


def _has_aggregate(node: exp.Expr) -> bool:
    return next(aggregates(node), None) is not None


def grouped(rows: Rows, select: exp.Select, items: Sequence[exp.Expr], nodes: Sequence[exp.Expr]) -> Rows:
    """The rows of groups; `items` is the select list, `nodes` all expressions over the groups."""
    group_nodes = list(_group_nodes(rows, select, items))
    groups: list[Attribute] = []
    texts: dict[str, Attribute] = {}
    for node in group_nodes:
        typed, reads = rows.typed(node)
        if not reads and (groups or node is not group_nodes[-1]):
            # A constant makes no groups; but without rows there is none, so nothing but constants are one.
            continue
        require_identical(rows, node, settle(typed), "GROUP BY")
        texts[typed.sql] = found = rows.beside(settle(typed), reads, node.alias_or_name or "group")
        if found not in groups:
            groups.append(found)
    groups += [each for each in _settled(rows, nodes, groups) if each not in groups]
    rows.groups = tuple(groups)
    calls = _Calls(rows)
    for node in (each for root in nodes for each in aggregates(root)):
        calls.add(node)
    plan = Aggregate(rows.plan, tuple(groups), tuple(calls.made))
    after = _after(rows, plan, texts, calls.answers, is_single=not group_nodes)
    calls.divide(after)
    return after


def _group_nodes(rows: Rows, select: exp.Select, items: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """The expressions of GROUP BY; a position, or a name that only the select list has, stands for its item."""
    group = select.args.get("group")
    if group is None:
        return
    for part, value in group.args.items():
        if part != "expressions" and value:
            raise rows.context.refuse(group, f"GROUP BY {part.upper()} is not supported in views", _SETS)
    for node in group.expressions:
        if isinstance(node, (exp.GroupingSets, exp.Rollup, exp.Cube, exp.Tuple)):
            name = type(node).__name__.upper()
            raise rows.context.refuse(node, f"GROUP BY {name} is not supported in views", _SETS)
        yield _meant(rows, node, items)


def _meant(rows: Rows, node: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    if isinstance(node, exp.Literal) and not node.args.get("is_string"):
        at = int(node.this) if str(node.this).isdigit() else 0
        if not 1 <= at <= len(items):
            raise rows.context.refuse(node, f"GROUP BY position {node.this} is not in the select list", "name a column")
        return _inner(items[at - 1])
    if isinstance(node, exp.Column) and not node.args.get("table") and rows.scope.find(rows.context, node) is None:
        name = identifier(node.this)
        return next((_inner(item) for item in items if _called(item) == name), node)
    return node


def _inner(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


def _called(item: exp.Expr) -> str | None:
    return identifier(item.args["alias"]) if isinstance(item, exp.Alias) else None


def _settled(rows: Rows, nodes: Sequence[exp.Expr], groups: Sequence[Attribute]) -> Iterator[Attribute]:
    """The columns outside aggregates that the primary key of their table settles, which is among the groups."""
    keys = [entry for entry in rows.scope.entries if entry.key and entry.key <= set(groups)]
    settled = {each.attribute for entry in keys for each in entry.fields}
    for node in (column for each in nodes for column in _columns(each)):
        found = rows.scope.find(rows.context, node)
        if found is not None and found.attribute in settled:
            yield found.attribute


def _columns(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns of an expression outside its aggregates, those of nested queries included."""
    own = {id(each) for each in aggregates(node)}
    for each in node.walk(prune=lambda inner: id(inner) in own):
        if isinstance(each, exp.Column) and not isinstance(each.this, exp.Star) and id(each) not in own:
            yield each


class _Calls:
    """Each aggregate as a result beside the groups; the same call twice is one, and an average is two."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        # json_agg and jsonb_agg of a number are one text of two types.
        self._columns: dict[tuple[str, Type], Typed] = {}
        self._averages: dict[int, tuple[Typed, Typed]] = {}
        self.made: list[tuple[Attribute, Expr]] = []
        self.answers: dict[int, Typed] = {}

    def add(self, node: exp.Expr) -> None:
        """One aggregate of an expression."""
        if is_average(node):
            parts, reads = self._rows.reading(lambda: average(self._rows, node))
            self._averages[id(node)] = self._column(node, parts[0], reads), self._column(node, parts[1], reads)
            return
        typed, reads = self._rows.reading(lambda: aggregate(self._rows, node))
        self.answers[id(node)] = self._column(node, typed, reads)

    def divide(self, after: Rows) -> None:
        """The averages, beside the rows of groups."""
        columns = {column.sql: column for column, _ in self.made}
        found: dict[str, Typed] = {}
        for node, parts in self._averages.items():
            typed = quotient(*parts)
            if typed.sql not in found:
                column = after.beside(typed, frozenset(columns[each.sql] for each in parts), "avg")
                found[typed.sql] = Typed(column.sql, column.type)
            after.answers[node] = found[typed.sql]

    def _column(self, node: exp.Expr, typed: Typed, reads: frozenset[Attribute]) -> Typed:
        if reads and not reads & set(self._rows.plan.columns):
            hint = "aggregate in the query that the columns belong to"
            raise self._rows.context.refuse(
                node, "an aggregate over an outer query's columns is not supported in views", hint
            )
        call = typed.sql, typed.type
        if call not in self._columns:
            column = self._rows.numbers.new(_word(typed.sql), typed.type)
            self.made.append((column, as_expr(typed, reads)))
            self._columns[call] = Typed(column.sql, typed.type, c_collated=typed.c_collated)
        return self._columns[call]


def _word(sql: str) -> str:
    return sql.partition("(")[0]


def _after(
    before: Rows, plan: Aggregate, texts: dict[str, Attribute], answers: dict[int, Typed], *, is_single: bool
) -> Rows:
    groups = set(plan.groups)
    computed = {sql: column for sql, column in texts.items() if sql != column.sql}

    def check(rows: Rows, node: exp.Column, found: Field) -> Field:
        if found.attribute not in groups:
            raise _ungrouped(rows, node, found, is_single=is_single)
        return found

    def whole(node: exp.Expr) -> Typed | None:
        if not computed or isinstance(node, (exp.Column, *_CONSTANT)) or _has_aggregate(node) or node.find(exp.Query):
            return None
        try:
            typed, _ = before.typed(node)
        except ConfigError:
            return None
        column = computed.get(typed.sql)
        return None if column is None else Typed(column.sql, column.type, c_collated=typed.c_collated)

    return Rows(
        before.source,
        before.numbers,
        before.scope,
        plan,
        before.nested,
        before.outer,
        answers=answers,
        check=check,
        whole=whole,
    )


def _ungrouped(rows: Rows, node: exp.Column, found: Field, *, is_single: bool) -> ConfigError:
    name = found.written
    message = f"column {found.name} is not grouped" if not is_single else f"column {found.name} beside an aggregate"
    hint = f"add {name} to GROUP BY, or aggregate it: max({name})"
    return rows.context.error(node, message, hint, UNGROUPED)
