"""Whatever stands in a view file: it is a view, or a ConfigError with a place; never another exception."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError
from jobs.declare import declare_view
from jobs.declare.patterns import spark_pattern
from jobs.declare.source import Source
from jobs.tables import ColumnInfo, TableInfo

TABLE = TableInfo(
    1,
    "public",
    "t",
    1,
    "d",
    ("id",),
    (
        ColumnInfo("id", "bigint", 20, 20, -1, key=True),
        ColumnInfo("s", "text", 25, 25),
        ColumnInfo("d", "numeric(10,2)", 1700, 1700),
        ColumnInfo("b", "boolean", 16, 16),
    ),
    "t",
    1,
)
WORDS = [
    *("SELECT", "id", "s", "d", "b", "FROM", "t", "WHERE", "AND", "OR", "NOT", "IN", "(", ")", "(", ")", ",", "*", "+"),
    *("-", "/", "%", "||", "=", "<", ">", "<>", "::", "text", "int", "numeric(3,1)", "'a'", "''", "1", "0.5", "NULL"),
    *("TRUE", "IS", "BETWEEN", "LIKE", "ESCAPE", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "x", "y", "COLLATE"),
    *('"C"', "lower", "length", "substring", "trim", "coalesce", ";", ".", "AT TIME ZONE", "'UTC'", "--", "/*", "*/"),
    *("$$", "E'a'", "'", '"', "[", "]", ":", "@", "{", "}", "GROUP BY", "count(*)", "over", "join", "on", "limit"),
    *("\\", "é", "\n", "\t"),
]


def declare(text: str) -> None:
    error = None
    try:
        declare_view("v", Source("v.sql", text), {("public", "t"): TABLE})
    except ConfigError as refused:
        error = refused
    assert error is None or (error.message.startswith("v.sql:") and error.hint)


@given(st.text())
def test_any_text(text):
    declare(text)


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_any_words_of_sql(text):
    declare(text)


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_expression(text):
    declare(f"SELECT id, {text} AS z FROM t WHERE {text}")


@given(st.text(alphabet="ab\\%_!", max_size=8), st.text(alphabet="ab%_", max_size=8), st.sampled_from(["\\", "!", ""]))
def test_a_rewritten_pattern_matches_the_same(pattern, text, escape):
    written = spark_pattern(pattern, escape)
    if written is not None:
        assert matches(written, text, "\\") == matches(pattern, text, escape)


def matches(pattern: str, text: str, escape: str) -> bool:
    """LIKE as Postgres's manual tells it."""
    if not pattern:
        return not text
    if escape and pattern[0] == escape:
        return text[:1] == pattern[1] and matches(pattern[2:], text[1:], escape)
    if pattern[0] == "%":
        return any(matches(pattern[1:], text[at:], escape) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and matches(pattern[1:], text[1:], escape)
