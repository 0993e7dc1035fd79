"""The source of the apply benchmark: tables of orders, and the changes that are made in them.

In: a table's name and sizes. Out: SQL. All of it runs in Postgres; keys are scattered over the whole table, each once.
"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = {
    "id": "bigint",
    "customer": "bigint",
    "status": "string",
    "amount": "decimal(12,2)",
    "quantity": "int",
    "is_paid": "boolean",
    "placed": "timestamp",
    "mark": "bigint",
    "note": "string",
}
"""In Delta's types; the mirror has the same."""

_DDL = """CREATE TABLE {table} (
    id bigint PRIMARY KEY, customer bigint NOT NULL, status text NOT NULL, amount numeric(12,2) NOT NULL, quantity int,
    is_paid boolean, placed timestamptz NOT NULL, mark bigint NOT NULL, note text
)"""
_ROW = """g, g % 50000, CASE WHEN g % 3 = 0 THEN 'open' ELSE 'delivered' END, (g % 100000) / 100.0, g % 7, g % 2 = 0,
    timestamptz '2026-01-01' + g * interval '1 second', 0, CASE WHEN g % 4 = 0 THEN NULL ELSE 'a note on ' || g END"""
_PRIME = 7919
_RETIRED_OF_TEN = 1
"""Of ten changes one is an insert, one a delete."""


def names(count: int) -> list[str]:
    """orders, orders_2, .."""
    return ["orders", *(f"orders_{number}" for number in range(2, count + 1))]


CUSTOMERS: Final = "customers"
CUSTOMERS_OF: Final = 50_000
"""As many as the orders name."""


def customers() -> list[str]:
    """A small table beside the large ones, for views that join."""
    return [
        f"CREATE TABLE {CUSTOMERS} (id bigint PRIMARY KEY, name text NOT NULL, region int NOT NULL)",
        f"INSERT INTO {CUSTOMERS} SELECT g, 'customer ' || g, g % 20 FROM generate_series(0, {CUSTOMERS_OF - 1}) g",  # noqa: S608
        f"VACUUM (FREEZE, ANALYZE) {CUSTOMERS}",
    ]


def filled(table: str, rows: int) -> list[str]:
    """A table of so many rows."""
    fill = f"INSERT INTO {table} SELECT {_ROW} FROM generate_series(1, {rows}) g"  # noqa: S608  our own names
    return [_DDL.format(table=table), fill, f"VACUUM (FREEZE, ANALYZE) {table}"]


def all_updated(table: str, turn: int) -> list[str]:
    """Every row changed once more."""
    return [f"UPDATE {table} SET mark = {turn}, amount = amount + 1"]  # noqa: S608


def changed(table: str, changes: int, rows: int, turn: int) -> list[str]:
    """So many changes of as many keys all over the table, in one transaction."""
    few = max(1, changes * _RETIRED_OF_TEN // 10)
    updates, step = changes - 2 * few, f"(g::bigint * {_PRIME} + {turn} * 1009) % {rows}"
    new = f"{rows} + {turn} * 1000000"
    deleted = f"SELECT 1 + {step} FROM generate_series({updates + 1}, {updates + few}) g"  # noqa: S608
    return [
        f"UPDATE {table} SET mark = {turn}, amount = amount + 1, is_paid = NOT is_paid "  # noqa: S608
        f"WHERE id IN (SELECT 1 + {step} FROM generate_series(1, {updates}) g)",
        f"DELETE FROM {table} WHERE id IN ({deleted})",  # noqa: S608
        f"INSERT INTO {table} SELECT {_ROW} FROM generate_series({new} + 1, {new} + {few}) g",  # noqa: S608
    ]


def recent_changed(table: str, changes: int, rows: int, turn: int) -> list[str]:
    """So many of the newest keys, of a table of so many rows."""
    newest = f"id > {rows} - {2 * changes} AND id % 2 = {turn % 2}"
    return [f"UPDATE {table} SET mark = {turn}, amount = amount + 1 WHERE {newest}"]  # noqa: S608
