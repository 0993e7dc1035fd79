"""Which keys of a view the changed rows of one relation show by themselves."""

from __future__ import annotations

import pytest

from jobs.upkeep.choice import replaced_by
from jobs.upkeep.shown import shown_by
from tests.support.view_specs import declare

ORDERS = "public.orders"


def shown(sql: str, relation: str = ORDERS) -> set[str] | None:
    """The relation's columns, if they show the view's keys."""
    plan = declare(sql).plan
    found = shown_by(plan.root, replaced_by(plan), relation)
    return None if found is None else set(found.values())


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.vip", {"id"}),
        (
            "SELECT o.id FROM (SELECT id, customer_id c FROM orders WHERE total > 5) o JOIN customers k ON k.id = c",
            {"id"},
        ),
        ("SELECT status, count(DISTINCT total) AS n FROM orders GROUP BY status", {"status"}),
        (
            "SELECT customer_id, count(*) AS n FROM orders o JOIN items i ON i.order_id = o.id GROUP BY customer_id",
            {"customer_id"},
        ),
        ("SELECT DISTINCT customer_id, status FROM orders", {"customer_id", "status"}),
        ("SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON c.id = o.customer_id", {"id"}),
    ],
    ids=["an inner join", "a nested query", "groups", "groups over a join", "distinct rows", "an outer join"],
)
def test_columns_that_come_through_filters_joins_and_groups_show_them(sql: str, columns: set[str]):
    assert shown(sql) == columns


@pytest.mark.parametrize(
    ("sql", "relation"),
    [
        ("SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id", "public.customers"),
        ("SELECT o.id, p.id AS other FROM orders o JOIN orders p ON p.customer_id = o.customer_id", ORDERS),
        ("SELECT c.id, o.id AS first FROM customers c LEFT JOIN orders o ON o.customer_id = c.id", ORDERS),
        ("SELECT id, rank() OVER (PARTITION BY customer_id ORDER BY id) AS r FROM orders", ORDERS),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id)", "public.items"),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT order_id FROM items)", ORDERS),
        ("SELECT id AS k FROM orders UNION SELECT order_id FROM items", ORDERS),
        ('SELECT lower(status COLLATE "C") AS s, count(*) AS n FROM orders GROUP BY 1', ORDERS),
    ],
    ids=[
        "the other side",
        "a self join",
        "an outer join",
        "a window",
        "a nested query",
        "a filter by one",
        "a union",
        "an expression",
    ],
)
def test_other_rows_may_be_touched_as_well(sql: str, relation: str):
    assert shown(sql, relation) is None
