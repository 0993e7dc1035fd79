"""Keys of views over several tables: proved, or asked for and checked, and which of them sinks can name."""

from __future__ import annotations

import pytest

from tests.support.view_specs import declare, refused


def key_of(text: str) -> tuple[tuple[str, ...], bool]:
    """The key, and whether it is proved."""
    spec = declare(text)
    return spec.key, spec.plan.key_proof is not None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("SELECT i.line, o.id FROM orders o JOIN items i ON i.order_id = o.id", ("line", "id")),
        ("SELECT i.* FROM orders o JOIN items i ON i.order_id = o.id", ("order_id", "line")),
        ("SELECT o.id FROM orders o JOIN items i ON i.order_id = o.id AND i.line = 1", ("id",)),
        ("SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON c.id = o.customer_id", ("id",)),
        ("SELECT o.id, i.line FROM orders o LEFT JOIN items i ON i.order_id = o.id", ("id", "line")),
        ("SELECT o.id, i.line FROM orders o LEFT JOIN items i ON i.order_id = o.id AND i.line = 2", ("id",)),
        ("SELECT o.id, c.id AS c FROM orders o FULL JOIN customers c ON c.id = o.customer_id", ("id", "c")),
        ("SELECT name, c.id, count(*) AS n FROM customers c GROUP BY name, c.id", ("id",)),
        ("SELECT count(*) AS n, status AS s FROM orders GROUP BY status", ("s",)),
        ("SELECT DISTINCT status, customer_id FROM orders", ("status", "customer_id")),
        ("SELECT count(*) AS n, max(id) AS m FROM orders", ("n",)),
        ("SELECT id FROM customers UNION SELECT customer_id FROM orders", ("id",)),
        ("SELECT id, name FROM customers EXCEPT SELECT 1, 'x' FROM orders", ("id",)),
        ("SELECT 1 AS k, id FROM customers UNION ALL SELECT 2, customer_id FROM orders WHERE id = 1", ("k", "id")),
        ("SELECT o.customer_id AS a, o.id + 0 AS b, id AS c FROM orders o, customers WHERE false", None),
        ("SELECT id FROM orders UNION ALL SELECT id FROM orders", None),
        ("SELECT status FROM orders o JOIN items i ON i.order_id = o.id", None),
        ("SELECT o.id FROM orders o LEFT JOIN items i ON i.order_id = o.id", None),
        ("SELECT c.id FROM orders o FULL JOIN customers c ON c.id = o.customer_id", None),
        ("SELECT o.id, i.order_id AS i FROM orders o JOIN items i ON i.order_id >= o.id AND i.line = 1", ("id", "i")),
    ],
)
def test_keys_are_proved_or_asked_for(text, key):
    if key is None:
        error = refused(text)
        assert (error.code, "checked at every refresh" in (error.hint or "")) in (
            ("VIEW_KEY", True),
            ("VIEW_AMBIGUOUS", False),
        )
        return
    assert key_of(text) == (key, True)


def test_a_declared_key_is_checked_where_it_cannot_be_proved():
    assert key_of("-- key: id\nSELECT id FROM orders UNION ALL SELECT id FROM items JOIN orders ON order_id = id") == (
        ("id",),
        False,
    )
    assert key_of("-- key: id, name\nSELECT id, name FROM customers WHERE id IN (SELECT customer_id FROM orders)") == (
        ("id", "name"),
        True,
    )
    assert key_of("-- key: status\nSELECT status FROM orders") == (("status",), False)
    assert refused("-- key: ids\nSELECT DISTINCT id FROM orders").hint == "did you mean id?"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT status, count(*) AS n FROM orders WHERE status IS NOT NULL GROUP BY status",
        "SELECT coalesce(status, '-') AS status, count(*) AS n FROM orders GROUP BY coalesce(status, '-')",
        "-- key: rest\nSELECT id % 7 AS rest, count(*) AS n FROM orders GROUP BY id % 7",
    ],
)
def test_a_key_without_nulls_has_names_in_every_sink(query):
    assert not declare(f"-- sinks: delta, cache\n{query}").nullable_key
