"""What views over several tables may not say: refused with a code, the place and a remedy."""

from __future__ import annotations

import pytest

from tests.support.view_specs import refused


@pytest.mark.parametrize(
    ("text", "code", "where", "words"),
    [
        # Names.
        ("SELECT o.id FROM orders o JOIN item i ON true", "VIEW_UNKNOWN_TABLE", "1:32", "did you mean items?"),
        ("SELECT line FROM twice JOIN orders ON order_id = id", "VIEW_UNKNOWN_TABLE", "1:18", "a.twice, b.twice"),
        ("SELECT o.ids FROM orders o JOIN items i ON true", "VIEW_UNKNOWN_COLUMN", "1:10", "did you mean id?"),
        ("SELECT skus FROM orders o JOIN items i ON true", "VIEW_UNKNOWN_COLUMN", "1:8", "did you mean sku?"),
        ("SELECT x.id FROM orders o JOIN items i ON true", "VIEW_UNKNOWN_TABLE", "1:8", "unknown table x"),
        ("SELECT x.* FROM orders o JOIN items i ON true", "VIEW_UNKNOWN_TABLE", "1:8", "unknown table x"),
        (
            "SELECT id FROM orders JOIN customers ON customer_id = customers.id",
            "VIEW_AMBIGUOUS",
            "1:8",
            '"orders"."id"',
        ),
        ("SELECT 1 AS x FROM orders, orders", "VIEW_AMBIGUOUS", "1:28", "twice"),
        (
            "SELECT a.id FROM orders a JOIN items b ON b.order_id = a.id AND c.id = 1 JOIN customers c ON true",
            "VIEW_UNKNOWN_TABLE",
            "1:65",
            "unknown table c",
        ),
        ("SELECT order_id FROM items JOIN orders USING (order_id)", "VIEW_UNKNOWN_COLUMN", "1:47", "both sides"),
        ("SELECT id FROM customers JOIN orders USING (id)", "VIEW_UNSUPPORTED", "1:45", "one type"),
        (
            "SELECT x.id FROM orders, (SELECT id FROM customers WHERE id = customer_id) x",
            "VIEW_UNKNOWN_COLUMN",
            "1:63",
            "customer_id",
        ),
        # FROM.
        ("SELECT o.id FROM orders o JOIN items i", "VIEW_UNSUPPORTED", "1:32", "without ON"),
        ("SELECT o.id FROM orders o NATURAL JOIN items i", "VIEW_UNSUPPORTED", "1:40", "USING"),
        ("SELECT o.id FROM orders o CROSS JOIN LATERAL (SELECT 1) i", "VIEW_UNSUPPORTED", "1:", "LATERAL"),
        ("SELECT o.id FROM orders o, generate_series(1, 2) i", "VIEW_UNSUPPORTED", "1:", "name a table"),
        ("SELECT o.id FROM orders o, ONLY items", "VIEW_UNSUPPORTED", "1:33", "ONLY"),
        ("SELECT o.id FROM orders o, items TABLESAMPLE system (1)", "VIEW_UNSUPPORTED", "1:28", "TABLESAMPLE"),
        ("SELECT x.id FROM (SELECT id FROM orders)", "VIEW_UNSUPPORTED", "1:26", "needs a name"),
        ("SELECT id, line FROM orders, log", "VIEW_KEY", "1:30", "no primary key"),
        (
            "SELECT o.id FROM orders o JOIN items i ON EXISTS (SELECT 1 FROM customers)",
            "VIEW_UNSUPPORTED",
            "1:",
            "a subquery",
        ),
        ("WITH RECURSIVE x AS (SELECT 1) SELECT id FROM orders", "VIEW_UNSUPPORTED", "1:", "RECURSIVE"),
        ("WITH x AS (SELECT nix FROM orders) SELECT id FROM orders", "VIEW_UNKNOWN_COLUMN", "1:19", "nix"),
        ("SELECT DISTINCT 1 AS x", "VIEW_UNSUPPORTED", "1:17", "without FROM"),
        # Groups.
        ("SELECT status, total FROM orders GROUP BY status", "VIEW_UNGROUPED", "1:16", "add"),
        ("SELECT status, count(*) AS n FROM orders", "VIEW_UNGROUPED", "1:8", "beside an aggregate"),
        ("SELECT status AS s FROM orders GROUP BY 2", "VIEW_UNSUPPORTED", "1:41", "position"),
        ("SELECT status FROM orders GROUP BY ROLLUP (status)", "VIEW_UNSUPPORTED", "1:", "ROLLUP"),
        ("SELECT weight FROM orders GROUP BY weight", "VIEW_UNSUPPORTED", "1:36", "double precision"),
        ("SELECT DISTINCT price FROM orders", "VIEW_UNSUPPORTED", "1:17", "numeric(12,2)"),
        ("SELECT DISTINCT data FROM orders", "VIEW_UNSUPPORTED", "1:17", "::text"),
        ("SELECT sum(weight) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "sum of double precision"),
        ("SELECT sum(price) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "numeric(12,2)"),
        ("SELECT max(status) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", 'COLLATE "C"'),
        ("SELECT min(vip) AS s FROM customers", "VIEW_UNSUPPORTED", "1:8", "min of boolean"),
        ("SELECT avg(weight) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "order of rows"),
        ("SELECT avg(total) + 1 AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "round it first"),
        ("SELECT customer_id FROM orders GROUP BY avg(total)", "VIEW_UNSUPPORTED", "1:", "avg"),
        ("SELECT string_agg(status, ',' ORDER BY total) AS s FROM orders", "VIEW_UNSUPPORTED", "1:", "ties"),
        ("SELECT string_agg(status, status ORDER BY id) AS s FROM orders", "VIEW_UNSUPPORTED", "1:", "literal"),
        ("SELECT array_agg(weight ORDER BY id) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "array_agg of double"),
        ("SELECT array_agg(id) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "ORDER BY"),
        ("SELECT string_agg(status, ',') AS s FROM orders", "VIEW_UNSUPPORTED", "1:", "ORDER BY"),
        ("SELECT any_value(id) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "order of rows"),
        ("SELECT stddev(id) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "supported: count"),
        ("SELECT sum(max(id)) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "within an aggregate"),
        ("SELECT id FROM orders WHERE count(*) > 1", "VIEW_UNSUPPORTED", "1:29", "count"),
        ("SELECT id + 1 AS x FROM orders GROUP BY id HAVING nix > 1", "VIEW_UNKNOWN_COLUMN", "1:51", "nix"),
        # Nested queries.
        ("SELECT id FROM orders WHERE id > ALL (SELECT id FROM orders)", "VIEW_UNSUPPORTED", "1:29", "EXISTS"),
        (
            "SELECT id FROM orders WHERE id IN (SELECT order_id, line FROM items)",
            "VIEW_UNSUPPORTED",
            "1:29",
            "2 columns",
        ),
        ("SELECT id, (SELECT order_id, line FROM items) AS x FROM orders", "VIEW_UNSUPPORTED", "1:20", "one column"),
        (
            "SELECT id, (SELECT max(line + o.id) FROM items) AS x FROM orders o",
            "VIEW_UNSUPPORTED",
            "1:20",
            "outer column",
        ),
        (
            "SELECT id FROM orders o WHERE EXISTS "
            "(SELECT 1 FROM items i WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.id))",
            "VIEW_UNSUPPORTED",
            "1:",
            "further out",
        ),
        (
            "SELECT id FROM orders o WHERE id IN (SELECT order_id FROM items WHERE nix = 1)",
            "VIEW_UNKNOWN_COLUMN",
            "1:71",
            "nix",
        ),
        # Set operations, order.
        ("SELECT id FROM orders UNION SELECT id, name FROM customers", "VIEW_UNSUPPORTED", "1:8", "numbers of columns"),
        ("SELECT id FROM orders UNION SELECT name FROM customers", "VIEW_UNSUPPORTED", "1:8", "one type"),
        ("SELECT DISTINCT id FROM orders ORDER BY id", "VIEW_UNSUPPORTED", "1:41", "order them when reading"),
        ("SELECT id FROM orders LIMIT 1", "VIEW_UNSUPPORTED", "1:29", "any rows"),
        ("SELECT id FROM orders ORDER BY status LIMIT 1", "VIEW_UNSUPPORTED", "1:32", 'COLLATE "C"'),
        ("SELECT id FROM orders ORDER BY id FETCH FIRST 3 ROWS WITH TIES", "VIEW_UNSUPPORTED", "1:", "rank()"),
        ("SELECT id FROM orders ORDER BY id LIMIT 1 + 1", "VIEW_UNSUPPORTED", "1:41", "plain numbers"),
        ("SELECT id FROM orders FOR UPDATE", "VIEW_UNSUPPORTED", "1:", "LOCKS"),
        # Outputs.
        ("SELECT count(*) FROM orders", "VIEW_OUTPUT", "1:8", "AS name"),
        ("SELECT o.id, c.id FROM orders o, customers c", "VIEW_OUTPUT", "1:14", "two columns id"),
        ("SELECT coalesce(sum(total), 0) AS s FROM orders", "VIEW_UNSUPPORTED", "1:8", "0.00"),
        ("SELECT max(id) AS m, now() AS t FROM orders", "VIEW_UNSUPPORTED", "1:22", "changes without"),
        ("SELECT p.mail, o.id FROM people p, orders o", "VIEW_UNSUPPORTED", "1:8", "concealed"),
        # The header.
        (
            "-- refresh: incremental\nSELECT id, line, sum(qty) OVER () AS n FROM orders JOIN items ON order_id = id",
            "VIEW_HEADER",
            "1:13",
            "write auto",
        ),
        (
            "-- refresh: incremental\nSELECT id FROM orders WHERE total > (SELECT max(total) / 2 FROM orders)",
            "VIEW_HEADER",
            "1:13",
            "write auto",
        ),
        ("-- refresh: never\nSELECT DISTINCT id FROM orders", "VIEW_HEADER", "1:13", "incremental"),
        ("-- max_affected: 120%\nSELECT DISTINCT id FROM orders", "VIEW_HEADER", "1:18", "20%"),
        ("-- refresh: full\nSELECT id FROM orders", "VIEW_HEADER", "1:4", "remove the line"),
        (
            "-- sinks: delta, cache\nSELECT status, count(*) AS n FROM orders GROUP BY status",
            "VIEW_KEY",
            "1:11",
            "WHERE status IS NOT NULL",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, code, where, words):
    error = refused(text)
    assert (error.code, error.message.split(": ")[0].removeprefix("config/views/view.sql:")[: len(where)]) == (
        code,
        where,
    )
    assert words in f"{error.message} {error.hint}"
    assert error.hint
