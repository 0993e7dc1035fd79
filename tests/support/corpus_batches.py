"""Random contents and random batches for the tables of the view corpora.

Values are few, so that rows meet, repeat and are NULL often; keys are deleted and come again, and move. All is made
from one seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

Value = Callable[[random.Random], Any]
NULLS = 0.15
WIPES = 0.03


def one_of(*values: Any) -> Value:
    """Any of these."""
    return lambda rng: rng.choice(values)


@dataclass(frozen=True)
class Table:
    """`key` columns come from few values, so that they are taken and free again."""

    name: str
    key: Mapping[str, Value]
    columns: Mapping[str, Value]
    first_rows: int

    def row(self, rng: random.Random, *, nulls: float = NULLS) -> dict[str, Any]:
        """A row."""
        found = {name: value(rng) for name, value in self.key.items()}
        return found | {name: self.value(rng, name, nulls=nulls) for name in self.columns}

    def value(self, rng: random.Random, name: str, *, nulls: float = NULLS) -> Any:
        """A value of one of its columns."""
        return None if rng.random() < nulls else self.columns[name](rng)


def _days(rng: random.Random) -> str:
    return rng.choice(["2023-12-31", "2024-02-29", "2024-03-31", "2025-01-01", "1999-12-31"])


def _moments(rng: random.Random) -> str:
    return f"{_days(rng)} {rng.choice(['00:00:00', '23:59:59.999999', '12:30:00', '06:00:00.5'])}"


def _small(rng: random.Random) -> int:
    return rng.randrange(8)


_WORDS = one_of("pen", "ink", "Ünder", "a b", "it's", "", "axe", "cab", "x,y", 'q"t', "NULL")
_SKUS = one_of("p1", "p2", "p3", "p4", "p5", "p6")
_MONEY = one_of("0.00", "0.01", "9.99", "10.00", "15.50", "30.00", "49.95", "-5.00", "1234567.89")

SHOP = (
    Table(
        "customers",
        {"id": _small},
        {
            "name": one_of("Ann Bee", "Bob", "Ünal Ö", "Cy", "Ann Bee"),
            "city": one_of("Rome", "Oslo", "Bern", "book"),
            "vip": one_of(True, False),
            "balance": _MONEY,
            "joined": _days,
            "parent_id": _small,
        },
        6,
    ),
    Table(
        "orders",
        {"id": lambda rng: rng.randrange(14)},
        {
            "customer_id": _small,
            "status": one_of("new", "paid", "paid", "sent"),
            "total": _MONEY,
            "placed": _moments,
            "paid_at": lambda rng: _moments(rng) + "+00",
            "note": _WORDS,
            "weight": one_of(0.0, 0.5, 1.5, 1e-7, 123456789.125, "NaN", "-0"),
        },
        10,
    ),
    Table(
        "items",
        {"order_id": lambda rng: rng.randrange(12), "line": lambda rng: rng.randrange(1, 4)},
        {
            "sku": _SKUS,
            "qty": one_of(1, 1, 2, 3, 7, 0),
            "price": one_of("0.30", "1.00", "2.50", "7.77", "99.99"),
            "discount": one_of("0.00", "0.05", "0.50"),
        },
        16,
    ),
    Table(
        "products",
        {"sku": _SKUS},
        {
            "name": one_of("Pen", "Ink", "Novel"),
            "kind": one_of("book", "tool", "Rome"),
            "price": one_of("0.30", "1.00", "2.50", "20.00"),
            "stock": _small,
        },
        4,
    ),
    Table(
        "events",
        {"id": lambda rng: rng.randrange(16)},
        {
            "customer_id": _small,
            "kind": one_of("click", "view", "buy"),
            "at": _moments,
            "amount": one_of(0, 1, 2, 3, 3, 4, -2),
            "ok": one_of(True, False),
            "ref": one_of("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"),
            "data": one_of(b"", b"\x00\xff", b"ab"),
        },
        12,
    ),
)


class Batches:
    """Changes of some tables, each batch one transaction."""

    def __init__(self, rng: random.Random, connection: psycopg.Connection[Any], tables: tuple[Table, ...]) -> None:
        self._rng = rng
        self._connection = connection
        self._tables = tables

    def fill(self) -> None:
        """A first content."""
        with self._connection.transaction():
            for table in self._tables:
                for _ in range(table.first_rows):
                    self._insert(table)

    def batch(self) -> None:
        """A few changes of one to all tables."""
        with self._connection.transaction():
            for table in self._rng.sample(self._tables, self._rng.randint(1, len(self._tables))):
                if self._rng.random() < WIPES:
                    self._run(f"DELETE FROM public.{table.name}", [])
                for _ in range(self._rng.randint(1, 4)):
                    self._rng.choice(
                        [self._insert, self._insert, self._update, self._update, self._delete, self._move]
                    )(table)

    def _insert(self, table: Table) -> None:
        row = table.row(self._rng)
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        marks = sql.SQL(", ").join(sql.Placeholder() * len(row))
        query = sql.SQL("INSERT INTO public.{} ({}) VALUES ({}) ON CONFLICT DO NOTHING")
        self._connection.execute(query.format(sql.Identifier(table.name), names, marks), list(row.values()))

    def _update(self, table: Table) -> None:
        """Some columns of some row, or of none."""
        names = self._rng.sample(sorted(table.columns), self._rng.randint(1, 2))
        values = [table.value(self._rng, name) for name in names]
        where, key = self._some_row(table)
        self._run(f"UPDATE public.{table.name} SET {', '.join(f'{name} = %s' for name in names)} {where}", values + key)

    def _delete(self, table: Table) -> None:
        where, key = self._some_row(table)
        self._run(f"DELETE FROM public.{table.name} {where}", key)

    def _move(self, table: Table) -> None:
        """Give a row another key, if that is free."""
        names = list(table.key)
        to = [value(self._rng) for value in table.key.values()]
        where, key = self._some_row(table)
        taken = " AND ".join(f"o.{name} = %s" for name in names)
        self._run(
            f"UPDATE public.{table.name} SET {', '.join(f'{name} = %s' for name in names)} {where}"
            f" AND NOT EXISTS (SELECT 1 FROM public.{table.name} o WHERE {taken})",
            to + key + to,
        )

    def _some_row(self, table: Table) -> tuple[str, list[Any]]:
        where = " AND ".join(f"{name} = %s" for name in table.key)
        return f"WHERE {where}", [value(self._rng) for value in table.key.values()]

    def _run(self, query: str, values: list[Any]) -> None:
        self._connection.execute(query.encode(), values)
