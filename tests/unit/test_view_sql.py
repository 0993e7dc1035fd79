"""A view's SELECT taken apart and put together again, to the letter."""

from __future__ import annotations

import pytest

from jobs.view import gone_sql, kept_sql, split_select
from sinks.spec import Kind, ViewSpec


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("SELECT `id` FROM changes", ("`id`", None)),
        ("SELECT `id`, `a` + 1 AS b FROM changes WHERE `a` > 1", ("`id`, `a` + 1 AS b", "`a` > 1")),
        ("SELECT 'x FROM y WHERE z' AS t FROM changes WHERE `w` = ' WHERE '", (None, "`w` = ' WHERE '")),
        ("SELECT EXTRACT(YEAR FROM `d`) AS y FROM changes", ("EXTRACT(YEAR FROM `d`) AS y", None)),
        ("SELECT COUNT(*) FILTER (WHERE true) FROM changes WHERE (a OR b)", (None, "(a OR b)")),
        ("SELECT `from`, `where` FROM changes WHERE `where` = 'it\\'s'", ("`from`, `where`", "`where` = 'it\\'s'")),
        ("SELECT `a` FROM changes WHERE `a` = '\\\\'", ("`a`", "`a` = '\\\\'")),
    ],
)
def test_a_select_is_split_at_its_own_words(sql, parts):
    items, condition = split_select(sql)
    assert parts[0] is None or items == parts[0]
    assert condition == parts[1]
    assert sql == f"SELECT {items} FROM changes" + (f" WHERE {condition}" if condition else "")


def spec(sql: str) -> ViewSpec:
    return ViewSpec("v", Kind.ROWWISE, "public", "t", ("k",), ("id",), ("k", "x"), "", sql, (), "f")


def test_what_a_view_keeps_and_what_leaves_it():
    sql = "SELECT `id` AS k, `x` FROM changes WHERE `x` > 0 OR `y`"
    assert kept_sql(sql) == (
        "SELECT `id` AS k, `x`, __op, __lsn, __at FROM changes "
        "WHERE CASE WHEN __op = 'u' THEN (`x` > 0 OR `y`) ELSE FALSE END"
    )
    assert gone_sql(spec(sql)) == (
        "SELECT `id` AS `k`, 'd' AS __op, __lsn, __at FROM changes "
        "WHERE CASE WHEN __op = 'd' THEN TRUE ELSE (`x` > 0 OR `y`) IS NOT TRUE END"
    )


def test_without_a_condition_only_deletes_leave():
    sql = "SELECT `id` AS k, `x` FROM changes"
    assert kept_sql(sql).endswith("FROM changes WHERE __op = 'u'")
    assert gone_sql(spec(sql)).endswith("FROM changes WHERE __op = 'd'")
