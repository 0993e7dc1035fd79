"""LIMIT at the top: which views are cut from a body, and that the two say what the file says, at its places."""

from __future__ import annotations

import pytest

from cdc.errors import ConfigError
from jobs.declare import declare_views, with_bodies
from jobs.declare.source import Source
from jobs.upkeep.verdict import Mode, verdict
from sinks.spec import ViewSpec
from tests.support.view_specs import RELATIONS

TOP = """-- key: who
-- sinks: delta, cache
-- refresh: incremental
SELECT c.id AS who, sum(o.total) AS total
FROM customers c JOIN orders o ON o.customer_id = c.id
GROUP BY c.id -- one each
ORDER BY sum(o.total) DESC NULLS LAST, who
LIMIT 3 OFFSET 1;
"""


def texts(text: str, **others: str) -> dict[str, Source]:
    files = {name: Source(f"{name}.sql", each) for name, each in {"top": text, **others}.items()}
    return with_bodies(files, RELATIONS, None)


def declared(text: str) -> dict[str, ViewSpec]:
    return {spec.name: spec for spec in declare_views(texts(text), RELATIONS)}


def order_of(text: str) -> str:
    """What a view is ordered by, of its body's rows; '' where it has no body."""
    split = texts(text)
    order = " ".join(split["top"].text.partition("ORDER BY")[2].split()).replace(" ,", ",")
    return order if "top__body" in split else ""


def test_a_limit_is_cut_from_a_body_that_is_kept_up_to_date():
    specs = declared(TOP)
    body, top = specs["top__body"], specs["top"]
    assert verdict(body.plan).mode is Mode.TALLIED
    assert ([each.name for each in body.sinks], [each.name for each in top.sinks]) == (["delta"], ["delta", "cache"])
    assert (body.refresh, top.refresh) == ("incremental", "auto")
    assert (body.columns, top.columns, top.key, top.relations) == (
        top.columns,
        ("who", "total"),
        ("who",),
        (body.name,),
    )
    assert top.postgres_sql.partition('"top__body" ')[2].split() == [
        *["ORDER", "BY", "total", "DESC", "NULLS", "LAST,", "who", "LIMIT", "3", "OFFSET", "1"]
    ]
    assert body.postgres_sql in top.postgres_sql


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("SELECT DISTINCT customer_id FROM orders ORDER BY 1 LIMIT 2", "1 LIMIT 2"),
        ("SELECT id FROM orders UNION SELECT id FROM customers ORDER BY id DESC LIMIT 2", "id DESC LIMIT 2"),
        (
            "SELECT status::text AS s, count(*) AS n FROM orders GROUP BY 1 "
            'ORDER BY COUNT(*) DESC, status::text COLLATE "C" FETCH FIRST 2 ROWS ONLY',
            'n DESC, s COLLATE "C" FETCH FIRST 2 ROWS ONLY',
        ),
        (
            "WITH w AS (SELECT id FROM orders ORDER BY id LIMIT 9) "
            'SELECT w.id, i.line AS "L i" FROM w JOIN items i ON i.order_id = w.id ORDER BY i.line, w.id OFFSET 4',
            '"L i", id OFFSET 4',
        ),
        ("SELECT * FROM orders o JOIN items i ON i.order_id = o.id ORDER BY id, line LIMIT 1", "id, line LIMIT 1"),
        (
            "SELECT id AS nulls, line FROM orders JOIN items ON order_id = id ORDER BY nulls NULLS FIRST, 2 LIMIT 1",
            "nulls NULLS FIRST, 2 LIMIT 1",
        ),
    ],
)
def test_an_order_is_said_in_the_bodys_columns(text: str, order: str):
    assert order_of(text) == order


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, total FROM orders ORDER BY total DESC, id LIMIT 3",
        "SELECT customer_id, count(*) AS n FROM orders GROUP BY 1 ORDER BY max(id) LIMIT 3",
        "SELECT DISTINCT ON (customer_id) customer_id, id FROM orders ORDER BY customer_id, id LIMIT 3",
        "SELECT o.*, c.city FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY o.id LIMIT 3",
        "-- refresh: full\nSELECT DISTINCT customer_id FROM orders ORDER BY 1 LIMIT 2",
        "SELECT o.id, c.id AS other FROM orders o CROSS JOIN customers c ORDER BY o.id, c.id LIMIT 2",
        "SELECT c.name, o.total FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY o.total LIMIT 1",
        "SELECT DISTINCT customer_id FROM orders",
    ],
    ids=["rows", "hidden", "distinct on", "star", "full", "every key", "one row is the key", "whole"],
)
def test_what_has_no_body(text: str):
    assert texts(text) == {"top": Source("top.sql", text)}


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (TOP.replace("o.total) AS", "o.totl) AS"), "top.sql:4:27"),
        (TOP.replace("LIMIT 3", "LIMIT 1 + 2"), "top.sql:8:7"),
        (TOP.replace("delta, cache", "delta, cahce"), "top.sql:2:11"),
        (TOP.replace("ORDER BY sum(o.total) DESC", "ORDER BY 7 DESC"), "top.sql:7:10"),
    ],
)
def test_errors_stand_where_they_are_in_the_file(wrong: str, place: str):
    with pytest.raises(ConfigError) as caught:
        declared(wrong)
    assert caught.value.message.startswith(f"{place}: ")


def test_what_is_refused_is_one_view_as_its_file_has_it():
    assert texts(TOP.replace("o.total) AS", "o.totl) AS")).keys() == {"top"}


def test_a_files_name_may_not_be_a_bodys():
    with pytest.raises(ConfigError, match="top__body is what the LIMIT of the view top is cut from"):
        texts(TOP, top__body="SELECT id FROM orders")
