"""Texts that Postgres would not run, or answers otherwise than they seem to say; options that no sink takes."""

from __future__ import annotations

import pytest

from cdc.errors import ConfigError
from cdc.settings import Settings
from cdc.settings import Source as SourceSettings
from jobs.declare import declare_views
from jobs.declare.source import Source
from jobs.plan.nodes import Aggregate
from jobs.plan.walk import walk
from sinks.registry import make_sink
from tests.support.view_specs import RELATIONS, declare, refused

LOW = "SELECT c.id AS cid, count(*) AS n FROM orders o LEFT JOIN customers c ON c.id = o.customer_id GROUP BY c.id"


def test_what_an_outer_join_may_leave_out_is_nullable_in_the_views_above():
    pair = declare("SELECT DISTINCT l.cid, l.n FROM items i LEFT JOIN low l ON i.qty = l.n", low=LOW)
    assert (pair.key, pair.nullable_key) == (("cid", "n"), True)
    error = refused("-- sinks: cache\nSELECT l.cid, sum(l.n) AS n FROM low l GROUP BY l.cid", low=LOW)
    assert "the key column cid may be NULL" in error.message


@pytest.mark.parametrize("by", ["1", "k", "'x'::text", "'x', 2::int"])
def test_groups_of_constants_alone_are_there_only_with_rows(by: str):
    spec = declare(f"SELECT 'x'::text AS k, count(*) AS n FROM orders GROUP BY {by}")
    assert [len(each.groups) for each in walk(spec.plan.root) if isinstance(each, Aggregate)] == [1]
    counted = "SELECT count(*) FROM items i WHERE order_id = o.id GROUP BY 'x'"
    assert declare(f"SELECT id FROM orders o WHERE EXISTS ({counted})").key == ("id",)


def test_a_table_may_be_called_like_a_query_of_with():
    spec = declare("WITH low AS (SELECT cid FROM low WHERE cid IS NOT NULL) SELECT cid FROM low", low=LOW)
    assert spec.relations == ("low",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT id, user FROM orders", 'written "user"'),
        ("SELECT id, count(*) AS n FROM orders WHERE current_role = 'x' GROUP BY id", "changes without the tables"),
        ("SELECT id, replace(status, 'a') AS r FROM orders", "takes more arguments"),
        ("SELECT id, ceil() AS r FROM orders", "arguments"),
        ("SELECT id, every() AS r FROM orders GROUP BY id", "argument"),
        ("SELECT id, var_map(status) AS r FROM orders", "arguments"),
        ("SELECT id, btrim(status, 'a', 'b') AS r FROM orders", "btrim(text, 'characters')"),
        ("SELECT id, len(status) AS r FROM orders", "write length"),
        ("SELECT id, ifnull(status, 'a') AS r FROM orders", "write coalesce"),
        ("SELECT id, position('x', status) AS r FROM orders", "'x' IN column"),
        ("SELECT id FROM orders WHERE total == 1", "write ="),
        ("SELECT id FROM orders WHERE total <=> 1", "IS NOT DISTINCT FROM"),
        ("SELECT id FROM orders WHERE status RLIKE 'a'", "write ~"),
        ("SELECT id, total::string AS t FROM orders", "write text"),
        ("SELECT id, 1_000 FROM orders", "plain digits"),
        ("SELECT id FROM orders ORDER BY id LIMIT 5, 3", "LIMIT 3 OFFSET 5"),
        ("SELECT o.id, i.line FROM orders o FULL JOIN items i ON o.id < i.order_id", "an equality alone"),
        ("SELECT id, nullif(total, weight) AS r FROM orders", "cast the first one"),
        ("SELECT id, nullif(customer_id, total) AS r FROM orders", "cast the first one"),
    ],
)
def test_what_postgres_would_not_run_or_answer_otherwise_is_refused(text: str, words: str):
    error = refused(text)
    assert words in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    "text",
    [
        'SELECT id, "user" FROM (SELECT id, status AS "user" FROM orders) q',
        'SELECT q.id, q.user FROM (SELECT id, status AS "user" FROM orders) q',
        "SELECT id, div FROM (SELECT id, total AS div FROM orders) q",
        "SELECT o.id, nulls.id AS other FROM orders o JOIN customers nulls ON nulls.id = customer_id"
        " ORDER BY 1, nulls.id LIMIT 3",
    ],
)
def test_words_of_other_databases_are_names_like_others(text: str):
    assert declare(text).columns[0] == "id"


@pytest.mark.parametrize(
    ("header", "place"),
    [
        ("-- sinks: cache\n-- cache.list: nosuch", "config/views/view.sql:2:16"),
        ("-- sinks: cache\n-- cache.list: id\n-- cache.ttl: 5", "config/views/view.sql:1:11"),
        ('-- sinks: delta, search\n-- search.mapping: {"nosuch": {"type": "text"}}', "config/views/view.sql:2:20"),
        ("-- sinks: cache\n-- cache.key: {pipeline}:{generation}:{nosuch}", "config/views/view.sql:2:15"),
    ],
)
def test_what_a_sink_does_not_take_is_said_of_its_place(header: str, place: str):
    texts = {"view": Source("config/views/view.sql", f"{header}\nSELECT id, status FROM orders")}
    texts["fine"] = Source("config/views/fine.sql", "SELECT id FROM orders")
    told: dict[str, ConfigError] = {}
    settings = Settings(pipeline="p", source=SourceSettings(database="d", tables=("public.*",)))
    specs = declare_views(
        texts, RELATIONS, told.__setitem__, check=lambda option, spec: make_sink(option, spec, settings)
    )
    assert [spec.name for spec in specs] == ["fine"]
    assert {view: error.message.split(": ")[0] for view, error in told.items()} == {"view": place}
    assert told["view"].hint


@pytest.mark.parametrize(
    "other", ["a:{generation}:{key}", "a:{generation}:{id}", "a:{generation}:b:{key}", "{pipeline}:{generation}:{key}"]
)
def test_two_views_do_not_write_the_same_keys(other: str):
    texts = {
        name: Source(f"{name}.sql", f"-- sinks: cache\n-- cache.key: {pattern}\nSELECT id FROM orders")
        for name, pattern in {"one": "a:{generation}:{key}", "two": other}.items()
    }
    told: dict[str, ConfigError] = {}
    found = [spec.name for spec in declare_views(texts, RELATIONS, told.__setitem__)]
    is_apart = other.startswith("{pipeline}")
    assert (found, [*told]) == ((["one", "two"], []) if is_apart else (["one"], ["two"]))
