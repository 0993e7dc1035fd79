"""Views over several tables: what names mean, what plan they become, and how what they may not say is refused."""

from __future__ import annotations

import pytest

from cdc.changes import Trouble
from cdc.errors import ConfigError
from jobs.declare import declare_views
from jobs.declare.source import Source
from jobs.plan.nodes import Aggregate, Equality, Filter, Join, Limit, Lookup, LookupKind, OuterJoin, Project, Scan
from jobs.plan.walk import outer_reads, walk
from jobs.tables import ColumnInfo, TableInfo
from sinks.spec import Kind, NamedTable, ViewSpec


def table(schema: str, name: str, key: list[str], /, **columns: tuple[str, int]) -> TableInfo:
    infos = tuple(ColumnInfo(n, type_, oid, oid, -1, n in key, n not in key) for n, (type_, oid) in columns.items())
    return TableInfo(1, schema, name, 1, "d", tuple(n for n in columns if n in key), infos, f"shop.{schema}.{name}", 2)


INT, BIGINT, TEXT, MONEY = ("integer", 23), ("bigint", 20), ("text", 25), ("numeric(12,2)", 1700)
CUSTOMERS = table("public", "customers", ["id"], id=INT, name=TEXT, city=TEXT, vip=("boolean", 16))
ORDERS = table(
    "public",
    "orders",
    ["id"],
    id=BIGINT,
    customer_id=INT,
    status=TEXT,
    total=MONEY,
    price=("numeric", 1700),
    weight=("double precision", 701),
    mood=("public.mood", 99999),
    data=("jsonb", 3802),
)
ITEMS = table("public", "items", ["order_id", "line"], order_id=BIGINT, line=INT, sku=TEXT, qty=INT)
LOG = table("public", "log", [], line=TEXT)
PEOPLE = TableInfo(
    1,
    "public",
    "people",
    2,
    "d",
    ("id",),
    (ColumnInfo("id", "integer", 23, 23, key=True), ColumnInfo("mail", "text", 25, 25, rule="hash")),
    "shop.public.people",
    2,
)
RELATIONS = {(each.schema, each.table): each for each in (CUSTOMERS, ORDERS, ITEMS, LOG, PEOPLE)}
RELATIONS |= {("a", "twice"): ITEMS, ("b", "twice"): ITEMS}


def declare(text: str, **others: str) -> ViewSpec:
    texts = {"view": text, **others}
    sources = {name: Source(f"config/views/{name}.sql", each) for name, each in texts.items()}
    specs = {spec.name: spec for spec in declare_views(sources, RELATIONS, queries=True)}
    return specs["view"]


def refused(text: str, **others: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        declare(text, **others)
    return caught.value


def key_of(text: str) -> tuple[tuple[str, ...], bool]:
    """The key, and whether it is proved."""
    spec = declare(text)
    return spec.key, spec.plan.key_proof is not None


def test_a_join_becomes_a_spec_and_a_plan():
    spec = declare(
        "-- refresh: full\n-- max_affected: 12.5%\nSELECT o.id, line, c.name AS who\nFROM orders o -- all\n"
        "JOIN items i ON i.order_id = o.id, customers AS c\nWHERE c.id = o.customer_id AND qty > 1;"
    )
    assert (spec.kind, spec.key, spec.columns) == (Kind.QUERY, ("id", "line"), ("id", "line", "who"))
    assert (spec.refresh, spec.max_affected) == ("full", 0.125)
    assert spec.relations == ("public.customers", "public.items", "public.orders")
    assert spec.postgres_sql == (
        'SELECT o.id, line, c.name AS who FROM "public"."orders" o JOIN "public"."items" i ON i.order_id = o.id, '
        '"public"."customers" AS c WHERE c.id = o.customer_id AND qty > 1'
    )
    assert [spec.postgres_sql[each.at :].startswith(f'"{each.schema}"."{each.table}"') for each in spec.named] == [
        True
    ] * 3
    root = spec.plan.root
    assert isinstance(root, Project)
    assert root.columns == spec.plan.outputs
    join = root.input
    assert isinstance(join, Join)
    assert [each.relation for each in join.inputs if isinstance(each, Scan)] == [
        "public.orders",
        "public.items",
        "public.customers",
    ]
    assert [type(each).__name__ for each in join.conditions] == ["Equality", "Equality", "Expr"]
    assert isinstance(join.inputs[0], Scan)
    assert join.inputs[0].sources == ("id", "customer_id")


def test_right_is_left_and_where_above_an_outer_join_filters():
    root = declare(
        "SELECT i.*, o.status FROM orders o RIGHT JOIN items i ON i.order_id = o.id WHERE o.id IS NULL"
    ).plan.root
    assert isinstance(root.input, Filter)
    join = root.input.input
    assert isinstance(join, OuterJoin)
    assert isinstance(join.left, Scan)
    assert join.left.relation == "public.items"
    assert isinstance(join.conditions[0], Equality)


def test_each_mention_has_attributes_of_its_own():
    plan = declare(
        "WITH x AS (SELECT id, customer_id AS c FROM orders) SELECT a.id, b.id AS other FROM x a JOIN x b ON a.c = b.c"
    ).plan
    scans = [each for each in walk(plan.root) if isinstance(each, Scan)]
    assert len({column.id for scan in scans for column in scan.columns}) == 4


def test_groups_are_attributes():
    root = declare(
        "SELECT total * 2 AS t, count(*) + 1 AS n, sum(qty) AS q FROM orders JOIN items ON order_id = id "
        "GROUP BY total * 2 HAVING sum(qty) > 3"
    ).plan.root
    having = root.input
    assert isinstance(having, Filter)
    found = having.input
    assert isinstance(found, Aggregate)
    assert [expr.sql.partition("(")[0] for _, expr in found.calls] == ["count", "sum"]
    assert isinstance(found.input, Project)
    assert found.groups[0] == found.input.items[-1][0]


def test_nested_queries_are_lookups():
    root = declare(
        "SELECT o.id, (SELECT count(*) FROM items i WHERE i.order_id = o.id) AS n FROM orders o "
        "WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id) AND customer_id NOT IN (SELECT id FROM customers)"
    ).plan.root
    lookups = [each for each in walk(root) if isinstance(each, Lookup)]
    kinds = [(each.kind, each.strict) for each in lookups]
    assert kinds == [(LookupKind.SCALAR, False), (LookupKind.IN, False), (LookupKind.EXISTS, True)]
    assert [len(outer_reads(each.query)) for each in lookups] == [1, 0, 1]


def test_the_first_rows():
    spec = declare("SELECT id FROM orders ORDER BY total DESC, id LIMIT 3 OFFSET 1")
    found = spec.plan.root.input
    assert isinstance(found, Limit)
    assert (found.count, found.offset, spec.plan.warnings) == (3, 1, ())
    assert [each.partition(" ")[2] for each in found.order] == ["DESC NULLS FIRST", "ASC NULLS LAST"]
    assert "cannot prove" in declare("SELECT id FROM orders ORDER BY total LIMIT 3").plan.warnings[0]


def test_stars_are_written_out_with_their_tables():
    spec = declare(
        "SELECT *, i.line AS l FROM (SELECT * FROM items) i "
        "JOIN (SELECT id AS order_id, status FROM orders) o USING (order_id)"
    )
    assert spec.columns == ("order_id", "line", "sku", "qty", "status", "l")
    assert spec.postgres_sql.startswith(
        'SELECT "order_id", "i"."line", "i"."sku", "i"."qty", "o"."status", i.line AS l FROM '
    )
    assert (
        '(SELECT "items"."order_id", "items"."line", "items"."sku", "items"."qty" FROM "public"."items") i'
        in spec.postgres_sql
    )


def test_views_on_views():
    spec = declare(
        "SELECT b.id, b.c, n.n FROM big b JOIN per n ON n.customer_id = b.c",
        big='SELECT id, customer_id AS c, data AS "My Data" FROM orders WHERE total > 5',
        per="SELECT customer_id, count(*) AS n FROM big JOIN orders o USING (id) GROUP BY customer_id",
    )
    assert spec.relations == ("big", "per")
    assert spec.key == ("id",)
    assert (
        'FROM (SELECT id, customer_id AS c, data AS "My Data" FROM "public"."orders" WHERE total > 5) b JOIN (SELECT'
        in spec.postgres_sql
    )
    assert spec.postgres_sql.count('"big"') == 1
    assert spec.named == tuple(
        NamedTable("public", "orders", at) for at in _places(spec.postgres_sql, '"public"."orders"')
    )
    inner = "SELECT id, status FROM orders WHERE total > 6"
    first = declare("SELECT id FROM inner_view JOIN items ON order_id = id WHERE line = 1", inner_view=inner)
    again = declare(
        "SELECT id FROM inner_view JOIN items ON order_id = id WHERE line = 1", inner_view=inner.replace("6", "7")
    )
    assert first.fingerprint != again.fingerprint
    assert first.key == ("id",)


def _places(text: str, word: str) -> list[int]:
    return [at for at in range(len(text)) if text.startswith(word, at)]


def test_views_that_read_each_other_are_refused():
    error = refused("SELECT a.id FROM a", a="SELECT b.id FROM b", b="SELECT a.id FROM a")
    assert error.code == "VIEW_CYCLE"
    assert "a -> b -> a" in error.message or "b -> a -> b" in error.message


def test_one_wrong_view_does_not_stop_the_others():
    told: list[tuple[str, str | None]] = []
    texts = {
        "wrong": "SELECT nothing FROM orders",
        "above": "SELECT id FROM wrong",
        "x": "SELECT id FROM y",
        "y": "SELECT id FROM x",
        "fine": "SELECT DISTINCT status FROM orders",
    }
    sources = {name: Source(name, text) for name, text in texts.items()}
    specs = declare_views(sources, RELATIONS, lambda view, error: told.append((view, error.code)), queries=True)
    assert [spec.name for spec in specs] == ["fine"]
    assert sorted(told) == [
        ("above", "VIEW_UNKNOWN_TABLE"),
        ("wrong", "VIEW_UNKNOWN_COLUMN"),
        ("x", "VIEW_CYCLE"),
        ("y", "VIEW_CYCLE"),
    ]


def test_a_view_over_a_stopped_table_is_stopped():
    trouble = Trouble("TABLE_DROPPED", "gone", "restore it")
    from dataclasses import replace

    relations = {**RELATIONS, ("public", "items"): replace(ITEMS, stopped=trouble)}
    text = Source("v", "SELECT id FROM orders WHERE id IN (SELECT order_id FROM items)")
    (spec,) = declare_views({"v": text}, relations, queries=True)
    assert spec.stopped == trouble


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
