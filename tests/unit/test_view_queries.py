"""Views over several tables: what names mean, what plan they become, and what views read of each other."""

from __future__ import annotations

from cdc.changes import Trouble
from jobs.declare import declare_views
from jobs.declare.source import Source
from jobs.plan.nodes import Aggregate, Equality, Filter, Join, Limit, Lookup, LookupKind, OuterJoin, Project, Scan
from jobs.plan.walk import outer_reads, walk
from sinks.spec import Kind, NamedTable
from tests.support.view_specs import ITEMS, RELATIONS, declare, refused


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
