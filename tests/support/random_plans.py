"""Random views over three small tables, and random batches of changes to these.

Values are few, so that rows meet, repeat and are NULL often. Every plan has one answer: what orders rows orders them
by all columns.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

from jobs.plan.nodes import (
    Aggregate,
    Attribute,
    Equality,
    Expr,
    Filter,
    Join,
    Limit,
    Lookup,
    LookupKind,
    OuterJoin,
    Plan,
    Project,
    Scan,
    SetKind,
    SetOperation,
    Window,
    WindowCall,
)
from jobs.plan.types import BOOL, INT4, INT8, TEXT, Type
from jobs.plan.view import ViewPlan

Row = tuple[object, ...]
Tables = dict[str, dict[Row, Row]]

TABLES: dict[str, tuple[tuple[str, Type], ...]] = {
    "public.a": (("id", INT4), ("x", INT4), ("y", INT4), ("s", TEXT)),
    "public.b": (("id", INT4), ("x", INT4), ("s", TEXT)),
    "public.c": (("id", INT4), ("k", INT4), ("y", INT4)),
}


def random_row(rng: random.Random, table: str, key: int) -> Row:
    """A row of the table; its first column is its key."""
    return (key, *(_value(rng, type_) for _, type_ in TABLES[table][1:]))


def _value(rng: random.Random, type_: Type) -> object:
    if rng.random() < 0.2:
        return None
    return rng.randrange(4) if type_ is INT4 else rng.choice("pq")


def random_tables(rng: random.Random) -> Tables:
    """A first content."""
    return {name: {(key,): random_row(rng, name, key) for key in range(rng.randrange(7))} for name in TABLES}


def changed(rng: random.Random, tables: Tables) -> Tables:
    """The content after a batch."""
    after = {name: dict(rows) for name, rows in tables.items()}
    for name in rng.sample(sorted(TABLES), rng.randint(1, 3)):
        rows = after[name]
        if rng.random() < 0.05:
            rows.clear()
        for _ in range(rng.randint(1, 3)):
            key = rng.randrange(8)
            if (key,) in rows and rng.random() < 0.4:
                del rows[key,]
            elif (key,) in rows and rng.random() < 0.7:
                old = list(rows[key,])
                at = rng.randrange(1, len(old))
                old[at] = _value(rng, TABLES[name][at][1])
                rows[key,] = tuple(old)
            else:
                rows[key,] = random_row(rng, name, key)
    return after


class PlanMaker:
    """Makes plans; each attribute that it makes has a number of its own."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = 0

    def view(self, depth: int = 3) -> ViewPlan:
        """A view of which a part of the columns is taken for its key."""
        plan = self._relation(depth)
        columns = list(plan.columns)
        self._rng.shuffle(columns)
        outputs = tuple(columns[: self._rng.randint(1, len(columns))])
        root = Project(plan, tuple((column, Expr.of(column)) for column in outputs))
        key = outputs[: self._rng.randint(1, len(outputs))]
        return ViewPlan(root, outputs, key, None)

    def _relation(self, depth: int) -> Plan:
        if depth == 0:
            return self._scan()
        makers: list[Callable[[int], Plan]] = [
            self._filter,
            self._project,
            self._join,
            self._join,
            self._outer_join,
            self._outer_join,
            self._aggregate,
            self._aggregate,
            self._window,
            self._lookup,
            self._lookup,
            self._set_operation,
            self._limit,
        ]
        weights = [2] * (len(makers) - 1) + [1]
        return self._rng.choices(makers, weights)[0](depth - 1)

    def _below(self, depth: int) -> Plan:
        return self._relation(self._rng.randint(0, depth))

    def attribute(self, name: str, type_: Type) -> Attribute:
        """A new one."""
        self._next += 1
        return Attribute(self._next, name, type_)

    def _scan(self) -> Scan:
        name = self._rng.choice(sorted(TABLES))
        columns = tuple(self.attribute(column, type_) for column, type_ in TABLES[name])
        return Scan(name, columns, tuple(column for column, _ in TABLES[name]), columns[:1])

    def _filter(self, depth: int) -> Plan:
        below = self._below(depth)
        return Filter(below, tuple(self._condition(below.columns) for _ in range(self._rng.randint(1, 2))))

    def _project(self, depth: int) -> Plan:
        below = self._below(depth)
        kept = [column for column in below.columns if self._rng.random() < 0.7] or [below.columns[0]]
        items = [(column, Expr.of(column)) for column in kept]
        numbers = _numbers(below.columns)
        if numbers:
            left, right = self._rng.choice(numbers), self._rng.choice(numbers)
            sql = f"coalesce({left.sql} + {right.sql}, {left.sql})"
            items.append((self.attribute("sum", INT8), Expr(sql, INT8, frozenset({left, right}))))
        return Project(below, tuple(items))

    def _join(self, depth: int) -> Plan:
        inputs = tuple(self._below(depth) for _ in range(self._rng.randint(2, 3)))
        columns = [column for each in inputs for column in each.columns]
        conditions = [self._link(left.columns, right.columns) for left, right in itertools.pairwise(inputs)]
        if self._rng.random() < 0.3:
            conditions.append(self._condition(columns))
        if self._rng.random() < 0.1:
            conditions.pop(0)
        return Join(inputs, tuple(conditions))

    def _outer_join(self, depth: int) -> Plan:
        left, right = self._below(depth), self._below(depth)
        conditions = [self._link(left.columns, right.columns)]
        if self._rng.random() < 0.3:
            conditions.append(self._condition((*left.columns, *right.columns)))
        return OuterJoin(left, right, tuple(conditions), full=self._rng.random() < 0.3)

    def _aggregate(self, depth: int) -> Plan:
        below = self._below(depth)
        groups = tuple(self._rng.sample(below.columns, self._rng.randint(0, min(2, len(below.columns)))))
        if groups and self._rng.random() < 0.2:
            return Aggregate(below, groups, ())
        calls = []
        for _ in range(self._rng.randint(1, 2)):
            column = self._rng.choice(below.columns)
            name = self._rng.choice(["count", "min", "max", "count(distinct"])
            sql = f"{name}({column.sql})" if "(" not in name else f"{name} {column.sql})"
            type_ = INT8 if "count" in name else column.type
            calls.append((self.attribute(name, type_), Expr(sql, type_, frozenset({column}))))
        calls.append((self.attribute("rows", INT8), Expr("count(*)", INT8, frozenset())))
        made: Plan = Aggregate(below, groups, tuple(calls))
        if self._rng.random() < 0.3:
            made = Filter(made, (self._condition(made.columns),))
        return made

    def _window(self, depth: int) -> Plan:
        below = self._below(depth)
        calls = []
        for _ in range(self._rng.randint(1, 2)):
            partition = frozenset(
                self._rng.sample(below.columns, min(self._rng.choice([0, 1, 1, 1, 2]), len(below.columns)))
            )
            by = ", ".join(f"{column.sql} NULLS LAST" for column in below.columns)
            parts = ", ".join(sorted(column.sql for column in partition))
            over = f"OVER ({f'PARTITION BY {parts} ' if parts else ''}ORDER BY {by})"
            sql = f"{self._rng.choice(['row_number()', 'rank()', 'count(*)'])} {over}"
            expr = Expr(sql, INT8, frozenset(below.columns))
            calls.append(WindowCall(self.attribute("rank", INT8), expr, partition))
        made = Window(below, tuple(calls))
        if self._rng.random() < 0.6:
            rank = calls[0].column
            return Filter(made, (Expr(f"{rank.sql} <= 2", BOOL, frozenset({rank})),))
        return made

    def _lookup(self, depth: int) -> Plan:
        outer, inner = self._below(depth), self._below(min(depth, 1))
        answer = self.attribute("answer", BOOL)
        kind = self._rng.choice([LookupKind.EXISTS, LookupKind.EXISTS, LookupKind.IN, LookupKind.SCALAR])
        query: Plan = inner
        if self._rng.random() < 0.7:
            query = Filter(inner, (self._link(inner.columns, outer.columns),))
        arguments: tuple[Expr, ...] = ()
        strict = self._rng.random() < 0.5
        if kind is LookupKind.SCALAR:
            numbers = self.attribute("rows", INT8)
            query = Aggregate(query, (), ((numbers, Expr("count(*)", INT8, frozenset())),))
            answer = self.attribute("value", INT8)
        elif kind is LookupKind.IN:
            column = self._rng.choice(_numbers(inner.columns) or [inner.columns[0]])
            alike = [each for each in outer.columns if each.type == column.type]
            if not alike:
                return outer
            query = Project(query, ((self.attribute("value", column.type), Expr.of(column)),))
            arguments = (Expr.of(self._rng.choice(alike)),)
        made = Lookup(outer, answer, kind, query, arguments, strict=strict and kind is not LookupKind.SCALAR)
        test = f"{answer.sql} >= 1" if kind is LookupKind.SCALAR else answer.sql
        if not made.strict and self._rng.random() < 0.5:
            test = f"NOT ({test})"
        if not made.strict and self._rng.random() < 0.3:
            return made
        return Filter(made, (Expr(test, BOOL, frozenset({answer})),))

    def _set_operation(self, depth: int) -> Plan:
        left, right = self._below(depth), self._below(depth)
        pairs = list(zip(_numbers(left.columns), _numbers(right.columns), strict=False))[:2]
        if not pairs:
            return left
        sides = []
        for side, at in ((left, 0), (right, 1)):
            items = [(self.attribute(p[at].name, INT8), _as_long(p[at])) for p in pairs]
            sides.append(Project(side, tuple(items)))
        columns = tuple(self.attribute(column.name, INT8) for column in sides[0].columns)
        made: Plan = SetOperation(self._rng.choice(list(SetKind)), sides[0], sides[1], columns)
        return Aggregate(made, columns, ()) if self._rng.random() < 0.3 else made

    def _limit(self, depth: int) -> Plan:
        below = self._below(depth)
        order = tuple(f"{column.sql} NULLS LAST" for column in below.columns)
        return Limit(below, order, self._rng.randint(1, 3), self._rng.randint(0, 1))

    def _link(self, left: tuple[Attribute, ...], right: tuple[Attribute, ...]) -> Expr:
        pairs = [(one, other) for one in left for other in right if one.type == other.type]
        numbers = [(one, other) for one, other in pairs if one.type is INT4] or pairs
        if not numbers:
            return Expr("TRUE", BOOL, frozenset())
        one, other = self._rng.choice(numbers)
        if self._rng.random() < 0.15 and one.type is INT4:
            return Expr(f"{one.sql} < {other.sql}", BOOL, frozenset({one, other}))
        return Equality(f"{one.sql} = {other.sql}", BOOL, frozenset({one, other}), left=one, right=other)

    def _condition(self, columns: tuple[Attribute, ...] | list[Attribute]) -> Expr:
        column = self._rng.choice(columns)
        if column.type in (INT4, INT8):
            sql = self._rng.choice([f"{column.sql} >= 1", f"{column.sql} <> 2", f"{column.sql} IS NULL"])
        else:
            sql = f"{column.sql} IS NOT NULL"
        return Expr(sql, BOOL, frozenset({column}))


def _numbers(columns: tuple[Attribute, ...] | list[Attribute]) -> list[Attribute]:
    return [column for column in columns if column.type in (INT4, INT8)]


def _as_long(column: Attribute) -> Expr:
    if column.type is INT8:
        return Expr.of(column)
    return replace(Expr.of(column), sql=f"CAST({column.sql} AS BIGINT)", type=INT8, attribute=None)
