"""View files: what they may say, and how what they may not say is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ConfigError
from jobs.declare import declare_view, load_views, mirror_spec
from jobs.declare.functions import FUNCTIONS
from jobs.declare.source import Source
from jobs.declare.translate import RULES
from sinks.spec import Kind, SinkOptions
from tests.support.view_specs import PEOPLE, table

ORDERS = table(
    "public",
    "orders",
    ["id"],
    id=("bigint", 20),
    status=("text", 25),
    total=("numeric(12,2)", 1700),
    price=("numeric", 1700),
    paid=("boolean", 16),
    placed_at=("timestamp with time zone", 1184),
    mood=("public.mood", 99999),
    code=("character(3)", 1042),
    n=("integer", 23),
    address=("inet", 869),
)
ITEMS = table("public", "items", ["order_id", "line"], line=("integer", 23), note=("text", 25), order_id=("bigint", 20))
HOSTILE = table("My Schema", 'o"r.d', ["I D"], **{"I D": ("bigint", 20), "a.b": ("text", 25), "select": ("text", 25)})
RELATIONS = {(each.schema, each.table): each for each in (ORDERS, ITEMS, HOSTILE)}
RELATIONS |= {("a", "twice"): ORDERS, ("b", "twice"): ORDERS}


def declare(text: str, name: str = "view"):
    return declare_view(name, Source("config/views/view.sql", text), RELATIONS)


def refused(text: str, name: str = "view") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        declare(text, name)
    return caught.value


def test_a_view_becomes_a_spec():
    spec = declare(
        "-- description: what is open\n-- key: id\n-- sinks: delta, cache, search\n-- cache.ttl: 60\n"
        "-- cache.value: hash\n-- cache.key: x:{generation}:{key}\n"
        '-- search.mapping: {"state": {"type": "keyword"}}\n'
        "SELECT id, status AS state, total * 2 AS twice -- a remark\nFROM orders o\nWHERE o.status = 'open';\n"
    )
    assert (spec.name, spec.kind, spec.schema, spec.table) == ("view", Kind.ROWWISE, "public", "orders")
    assert (spec.key, spec.key_source, spec.columns) == (("id",), ("id",), ("id", "state", "twice"))
    assert spec.postgres_sql == (
        'SELECT id, status AS state, total * 2 AS twice FROM "public"."orders" o WHERE o.status = \'open\''
    )
    assert spec.spark_sql == (
        "SELECT `id` AS `id`, `status` AS `state`, (`total` * CAST(2 AS DECIMAL(1,0))) AS `twice` "
        "FROM changes WHERE (`status` = 'open')"
    )
    assert spec.sinks == (
        SinkOptions("delta", {}),
        SinkOptions("cache", {"ttl": "60", "value": "hash", "key": "x:{generation}:{key}"}),
        SinkOptions("search", {"mapping": '{"state": {"type": "keyword"}}'}),
    )
    assert spec.file == "config/views/view.sql"


def test_a_star_is_written_out():
    spec = declare("SELECT i.*, i.note || 'x' AS more FROM public.items AS i")
    assert spec.postgres_sql == (
        'SELECT "line", "note", "order_id", i.note || \'x\' AS more FROM "public"."items" AS i'
    )
    assert spec.columns == ("line", "note", "order_id", "more")
    assert (spec.key, spec.key_source) == (("line", "order_id"), ("line", "order_id"))
    assert declare("SELECT * FROM items").columns == ("line", "note", "order_id")
    assert declare("SELECT items.*, n * 2 AS m FROM orders items").columns[-1] == "m"


def test_a_key_may_be_renamed_and_declared():
    spec = declare('-- key: "Order", line\nSELECT line, order_id AS "Order" FROM items')
    assert (spec.key, spec.key_source) == (("Order", "line"), ("order_id", "line"))
    assert spec.sinks == (SinkOptions("delta", {}),)


def test_hostile_names():
    spec = declare('SELECT "I D" AS "it\'s", "a.b", t."select" FROM "My Schema"."o""r.d" t')
    assert spec.postgres_sql == 'SELECT "I D" AS "it\'s", "a.b", t."select" FROM "My Schema"."o""r.d" t'
    assert spec.columns == ("it's", "a%2eb", "select")
    assert spec.key_source == ("I%20D",)
    assert "`I%20D` AS `it's`" in spec.spark_sql


def test_names_fold_as_in_postgres():
    spec = declare("SELECT ID, Orders.STATUS AS State FROM Public.ORDERS")
    assert spec.columns == ("id", "state")
    assert spec.postgres_sql == 'SELECT ID, Orders.STATUS AS State FROM "public"."orders"'


@pytest.mark.parametrize(
    ("text", "code", "where", "words"),
    [
        # The header.
        ("-- sink: delta\nSELECT id FROM orders", "VIEW_HEADER", "1:4", "did you mean sinks?"),
        ("-- sinks: delta, serch\nSELECT id FROM orders", "VIEW_HEADER", "1:11", "did you mean search?"),
        ("-- sinks: delta, delta\nSELECT id FROM orders", "VIEW_HEADER", "1:11", "twice"),
        ("-- key: id\n-- key: id\nSELECT id FROM orders", "VIEW_HEADER", "2:4", "twice"),
        ("-- key: id, id\nSELECT id FROM orders", "VIEW_HEADER", "1:9", "twice"),
        ("-- key:\nSELECT id FROM orders", "VIEW_HEADER", "1:8", "nothing"),
        ("-- cache.ttl: 60\nSELECT id FROM orders", "VIEW_HEADER", "1:4", "does not have"),
        ("-- sinks: cache\n-- cache.ttl: 1h\nSELECT id FROM orders", "VIEW_HEADER", "2:15", "seconds"),
        ("-- sinks: cache\n-- cache.value: xml\nSELECT id FROM orders", "VIEW_HEADER", "2:17", "json or hash"),
        ("-- sinks: cache\n-- cache.key: x:{key}\nSELECT id FROM orders", "VIEW_HEADER", "2:15", "{generation}"),
        ("-- sinks: search\n-- search.mapping: {x\nSELECT id FROM orders", "VIEW_HEADER", "2:20", "not JSON"),
        ("-- sinks: search\n-- search.mapping: [1]\nSELECT id FROM orders", "VIEW_HEADER", "2:20", "object"),
        ("SELECT id\n-- key: id\nFROM orders", "VIEW_HEADER", "2:4", "before the SELECT"),
        # Not one SELECT over one table.
        ("", "VIEW_SQL", "1:1", "no SELECT"),
        ("-- only a comment", "VIEW_SQL", "1:1", "no SELECT"),
        ("SELECT id FROM orders; SELECT 1", "VIEW_SQL", "1:24", "more than one"),
        ("UPDATE orders SET id = 1", "VIEW_UNSUPPORTED", "1:1", "UPDATE"),
        ("WITH x AS (SELECT 1) SELECT id FROM orders", "VIEW_UNSUPPORTED", "1:1", "WITH"),
        ("SELECT id\nFROM orders, items", "VIEW_UNSUPPORTED", "2:14", "a join"),
        ("SELECT id FROM orders JOIN items ON true", "VIEW_UNSUPPORTED", "1:23", "a join"),
        ("SELECT n FROM orders GROUP BY n", "VIEW_UNSUPPORTED", "1:22", "GROUP BY"),
        ("SELECT id FROM orders HAVING true", "VIEW_UNSUPPORTED", "1:23", "HAVING"),
        ("SELECT DISTINCT id FROM orders", "VIEW_UNSUPPORTED", "1:8", "DISTINCT"),
        ("SELECT id FROM orders ORDER BY id", "VIEW_UNSUPPORTED", "1:23", "ORDER BY"),
        ("SELECT id FROM orders LIMIT 1", "VIEW_UNSUPPORTED", "1:23", "LIMIT"),
        ("SELECT id FROM orders OFFSET 1", "VIEW_UNSUPPORTED", "1:23", "OFFSET"),
        ("SELECT id FROM orders FOR UPDATE", "VIEW_UNSUPPORTED", "1:23", "FOR UPDATE"),
        ("SELECT id FROM orders UNION SELECT id FROM orders", "VIEW_UNSUPPORTED", "1:23", "UNION"),
        ("SELECT id INTO x FROM orders", "VIEW_UNSUPPORTED", "1:11", "INTO"),
        ("SELECT id FROM (SELECT 1) x", "VIEW_UNSUPPORTED", "1:24", "a subquery"),
        ("SELECT id FROM orders WHERE id IN (SELECT 1)", "VIEW_UNSUPPORTED", "1:43", "a subquery"),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1)", "VIEW_UNSUPPORTED", "1:44", "a subquery"),
        ("SELECT id, (SELECT 1) AS x FROM orders", "VIEW_UNSUPPORTED", "1:20", "a subquery"),
        ("SELECT id, count(*) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "the aggregate count"),
        ("SELECT id, sum(n) OVER () AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "a window function"),
        ("SELECT id FROM ONLY orders", "VIEW_UNSUPPORTED", "1:21", "ONLY"),
        ("SELECT id FROM orders TABLESAMPLE system (1)", "VIEW_UNSUPPORTED", "1:16", "TABLESAMPLE"),
        ("SELECT id FROM generate_series(1, 2) id", "VIEW_UNSUPPORTED", "1:16", "FROM must name a table"),
        ("SELECT b FROM orders AS x(b)", "VIEW_UNSUPPORTED", "1:15", "this form"),
        ("SELECT 1 AS x", "VIEW_SQL", "1:13", "no FROM"),
        ("SELECT FROM orders", "VIEW_SQL", "1:1", "no columns"),
        ("SELECT id, FROM orders", "VIEW_SQL", "1:10", "comma"),
        ("SELECT id FROM orders WHERE", "VIEW_SQL", "1:23", "readable"),
        ("SELECT id id id FROM orders", "VIEW_SQL", "1:14", "readable"),
        ("SELECT 'x FROM orders", "VIEW_SQL", "1:", "quote"),
        # Names.
        ("SELECT id FROM ordres", "VIEW_UNKNOWN_TABLE", "1:16", "did you mean orders?"),
        ("SELECT id FROM pubic.orders", "VIEW_UNKNOWN_TABLE", "1:22", "did you mean public.orders?"),
        ("SELECT id FROM shop.public.orders", "VIEW_UNKNOWN_TABLE", "1:28", "schema.table"),
        ("SELECT id FROM twice", "VIEW_UNKNOWN_TABLE", "1:16", "a.twice, b.twice"),
        ("SELECT id, statsu FROM orders", "VIEW_UNKNOWN_COLUMN", "1:12", "did you mean status?"),
        ("SELECT id FROM orders\nWHERE ctid = '1'", "VIEW_UNKNOWN_COLUMN", "2:7", "ctid"),
        ("SELECT x.id FROM orders o", "VIEW_UNKNOWN_TABLE", "1:8", "called o"),
        ("SELECT x.* FROM orders o", "VIEW_UNKNOWN_TABLE", "1:8", "called o"),
        ("SELECT orders.id FROM orders o", "VIEW_UNKNOWN_TABLE", "1:8", "called o"),
        ("SELECT id, id + 1 FROM orders", "VIEW_OUTPUT", "1:12", "AS name"),
        ("SELECT id, n AS id FROM orders", "VIEW_OUTPUT", "1:12", "two columns id"),
        ("SELECT *, id FROM orders", "VIEW_OUTPUT", "1:11", "two columns id"),
        (f"SELECT id AS {'x' * 64} FROM orders", "VIEW_OUTPUT", "1:8", "shorter"),
        # Keys.
        ("SELECT n FROM orders", "VIEW_KEY", "1:1", "leaves out id"),
        ("SELECT id + 0 AS id FROM orders", "VIEW_KEY", "1:1", "select id as it is"),
        ("-- key: line\nSELECT * FROM items", "VIEW_KEY", "1:9", "not unique"),
        ("-- key: id, n\nSELECT id, n FROM orders", "VIEW_KEY", "1:9", "not a column of the primary key"),
        ("-- key: ids\nSELECT id FROM orders", "VIEW_KEY", "1:9", "did you mean id?"),
        ("-- key: a, b\nSELECT id AS a, id AS b FROM orders", "VIEW_KEY", "1:9", "twice"),
        # Expressions without an exact translation.
        ("SELECT id, date_trunc('decade', placed_at) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "date_trunc"),
        ("SELECT id, date_trunc(day, placed_at) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "literal"),
        ("SELECT id, date_part('day', placed_at) AS x FROM orders", "VIEW_UNSUPPORTED", "1:29", "extract(DAY"),
        ("SELECT id, placed_at + interval '1.5 days' AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "whole"),
        ("SELECT id, placed_at + 1 AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "interval"),
        ("SELECT id, total / 2 + 1 AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "round it first"),
        ("SELECT id, leng(status) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "did you mean length?"),
        ("SELECT id, now() AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "changes without"),
        ("SELECT id, random() AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "random"),
        ("SELECT id, current_date AS x FROM orders", "VIEW_UNSUPPORTED", "1:", "current_date"),
        ("SELECT id, lower(status) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", 'COLLATE "C"'),
        ("SELECT id FROM orders WHERE status < 'x'", "VIEW_UNSUPPORTED", "1:29", 'COLLATE "C"'),
        ("SELECT id FROM orders WHERE status COLLATE \"de_DE\" = 'x'", "VIEW_UNSUPPORTED", "1:29", '"C"'),
        ("SELECT id, total % 2 AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "bigint"),
        ("SELECT id, coalesce(total, 0) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "numeric(12,2)"),
        ("SELECT id, coalesce(total, 0)::text AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "cast"),
        ("SELECT id, price + 1 AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "numeric(12,2)"),
        ("SELECT id, total * total * total * total AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "38 digits"),
        ("SELECT id FROM orders WHERE mood = 'sad'", "VIEW_UNSUPPORTED", "1:29", "::text"),
        ("SELECT id FROM orders WHERE code LIKE 'ab%'", "VIEW_UNSUPPORTED", "1:29", "::text"),
        ("SELECT id FROM orders WHERE price = 1", "VIEW_UNSUPPORTED", "1:29", "numeric(12,2)"),
        ("SELECT id FROM orders WHERE id = 'x'", "VIEW_UNSUPPORTED", "1:29", "bigint"),
        ("SELECT id FROM orders WHERE n = 99999999999999999999999999999999999999999", "VIEW_UNSUPPORTED", "1:33", "38"),
        ("SELECT id FROM orders WHERE placed_at > '2026-01-01'", "VIEW_UNSUPPORTED", "1:29", "offset"),
        ("SELECT id FROM orders WHERE placed_at > 'yesterday'", "VIEW_UNSUPPORTED", "1:29", "offset"),
        ("SELECT id FROM orders WHERE paid = 't'", "VIEW_UNSUPPORTED", "1:29", "true or false"),
        ("SELECT id FROM orders WHERE status = n", "VIEW_UNSUPPORTED", "1:29", "text and integer"),
        ("SELECT id FROM orders WHERE n", "VIEW_UNSUPPORTED", "1:29", "boolean"),
        ("SELECT id FROM orders WHERE status", "VIEW_UNSUPPORTED", "1:29", "boolean"),
        ("SELECT id, n || 'x' AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "::text"),
        ("SELECT id, address::text AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "inet"),
        ("SELECT id, status::int AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "cast from text"),
        ("SELECT id, n::double precision AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "casts to double"),
        ("SELECT id, n::int[] AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "casts to"),
        ("SELECT id, n::mood AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "casts to"),
        ("SELECT id, total::numeric(40,2) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "38"),
        ("SELECT id, placed_at::timestamp(0) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "casts to"),
        ("SELECT id, placed_at AT TIME ZONE 'CET' AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "UTC"),
        ("SELECT id, left(status, -1) AS x FROM orders", "VIEW_UNSUPPORTED", "1:", "whole number from 0"),
        ("SELECT id, substr(status, 0) AS x FROM orders", "VIEW_UNSUPPORTED", "1:", "whole number from 1"),
        ("SELECT id, substr(status, n) AS x FROM orders", "VIEW_UNSUPPORTED", "1:", "whole number from 1"),
        ("SELECT id, trim(status, '') AS x FROM orders", "VIEW_UNSUPPORTED", "1:", "not empty"),
        ("SELECT id FROM orders WHERE status LIKE status", "VIEW_UNSUPPORTED", "1:41", "literal pattern"),
        ("SELECT id FROM orders WHERE status LIKE 'x\\'", "VIEW_UNSUPPORTED", "1:41", "escape"),
        ("SELECT id FROM orders WHERE status ILIKE 'x'", "VIEW_UNSUPPORTED", "1:29", "ILIKE"),
        ("SELECT id FROM orders WHERE status ~ '\\d'", "VIEW_UNSUPPORTED", "1:38", "regular expression"),
        ("SELECT id FROM orders WHERE n BETWEEN SYMMETRIC 1 AND 2", "VIEW_UNSUPPORTED", "1:29", "symmetric"),
        ("SELECT id FROM orders WHERE id = ANY(ARRAY[1])", "VIEW_UNSUPPORTED", "1:", "not supported"),
        ("SELECT id FROM orders WHERE (id, n) = (1, 2)", "VIEW_UNSUPPORTED", "1:", "not supported"),
        ("SELECT id, E'a\\n' AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "escapes"),
        ("SELECT id, $$a$$ AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "escapes"),
        ("SELECT id, 1e3 AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "1e3"),
        ("SELECT id, 'a' 'b' AS x FROM orders", "VIEW_UNSUPPORTED", "1:16", "side by side"),
        ("SELECT id, CASE WHEN paid THEN 1 ELSE status END AS x FROM orders", "VIEW_UNSUPPORTED", "1:", "one type"),
        ("SELECT id, nullif(n, 1.5) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "numeric"),
        ("SELECT id, greatest(status, 'a') AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "order"),
        ("SELECT id, public.lower(status) AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "not supported"),
        ("SELECT id, (n = 1) = (n = 2) IS NULL AS x FROM orders", "VIEW_UNSUPPORTED", "1:", ""),
        ("SELECT id, n = 1 = paid AS x FROM orders", "VIEW_UNSUPPORTED", "1:12", "parentheses"),
        ("SELECT id, concat(n, 'x') AS x FROM orders", "VIEW_UNSUPPORTED", "1:19", "::text"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, code, where, words):
    if not words:
        # Postgres reads `a = b IS NULL` as `(a = b) IS NULL`; so does the parser.
        assert "IS NULL" in declare(text).spark_sql
        return
    error = refused(text)
    assert error.code == code
    assert error.message.startswith(f"config/views/view.sql:{where}")
    assert words in f"{error.message} {error.hint}"
    assert error.hint


def test_the_excerpt_has_a_caret_under_the_word():
    error = refused("SELECT id,\n\tstatsu\nFROM orders")
    assert error.message.split("\n")[1:] == ["    2 |     statsu", "      |     ^^^^^^"]
    long = "SELECT id, " + ", ".join(f"n + {i} AS n{i}" for i in range(50)) + ", statsu, 'é' AS e FROM orders"
    line, caret = refused(long).message.split("\n")[1:]
    assert line[caret.index("^") : caret.rindex("^") + 1] == "statsu"
    assert len(line) < 120


@pytest.mark.parametrize("name", ["", "Orders", "1st", "a-b", "x" * 64, "_x", "é"])
def test_names_that_no_view_can_have(name):
    assert refused("SELECT id FROM orders", name).code == "VIEW_NAME"


@pytest.mark.parametrize("name", ["orders", "items", "afterimage", "changes"])
def test_names_that_are_taken(name):
    assert refused("SELECT id FROM orders", name).code == "VIEW_NAME"


def test_a_table_without_a_key_has_no_view():
    keyless = table("public", "log", [], line=("text", 25))
    with pytest.raises(ConfigError, match="no primary key"):
        declare_view("v", Source("v.sql", "SELECT line FROM log"), {("public", "log"): keyless})
    with pytest.raises(ConfigError, match="no primary key"):
        mirror_spec(keyless)


def test_the_fingerprint_changes_with_the_rows_and_not_with_the_words():
    first = declare("SELECT id, status FROM orders WHERE n > 1").fingerprint
    assert (
        declare("-- description: x\nSELECT id,\n  status -- here\nFROM public.orders\nWHERE n > 1 ;").fingerprint
        == first
    )
    assert (
        declare("-- sinks: delta, cache\n-- cache.ttl: 5\nSELECT id, status FROM orders WHERE n > 1").fingerprint
        == first
    )
    assert declare("SELECT id, status FROM orders WHERE n > 2").fingerprint != first
    assert declare("SELECT id, status AS s FROM orders WHERE n > 1").fingerprint != first
    retyped = table("public", "orders", ["id"], id=("bigint", 20), status=("character(3)", 1042), n=("integer", 23))
    text = "SELECT id, status FROM orders WHERE n > 1"
    assert declare_view("v", Source("f", text), {("public", "orders"): retyped}).fingerprint != first
    fewer = table("public", "orders", ["id"], id=("bigint", 20), status=("text", 25), n=("integer", 23))
    assert declare_view("v", Source("f", text), {("public", "orders"): fewer}).fingerprint == first


def test_a_mirror_is_the_whole_table():
    spec = mirror_spec(HOSTILE)
    assert spec.kind is Kind.MIRROR
    assert spec.name == "My-20Schema.o-22r-2ed"
    assert (spec.key, spec.key_source) == (("I%20D",), ("I%20D",))
    assert spec.postgres_sql == 'SELECT "I D", "a.b", "select" FROM "My Schema"."o""r.d"'
    assert spec.spark_sql == "SELECT `I%20D`, `a%2eb`, `select` FROM changes"
    assert spec.sinks == (SinkOptions("delta"),)
    wider = table("public", "items", ["line"], line=("integer", 23))
    assert mirror_spec(wider).fingerprint != mirror_spec(ITEMS).fingerprint


def test_a_folder_of_views(tmp_path: Path):
    (tmp_path / "b.sql").write_text("\ufeff-- sinks: cache\r\nSELECT id FROM orders\r\n", encoding="utf-8")
    (tmp_path / "a.sql").write_text("SELECT * FROM items")
    (tmp_path / "notes.txt").write_text("not a view")
    specs = load_views(tmp_path, RELATIONS)
    assert [(spec.name, spec.sinks[0].name) for spec in specs] == [("a", "delta"), ("b", "cache")]
    with pytest.raises(ConfigError) as caught:
        load_views(tmp_path / "none", RELATIONS)
    assert caught.value.code == "VIEW_FOLDER"


def test_a_file_that_is_not_text(tmp_path: Path):
    (tmp_path / "a.sql").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError) as caught:
        load_views(tmp_path, RELATIONS)
    assert caught.value.code == "VIEW_FILE"


def test_two_views_cannot_share_cache_keys(tmp_path: Path):
    header = "-- sinks: cache\n-- cache.key: order:{generation}:{key}\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.sql").write_text(f"{header}SELECT id FROM orders")
    with pytest.raises(ConfigError, match=r"would write the same keys"):
        load_views(tmp_path, RELATIONS)


def test_the_documentation_lists_every_function():
    text = (Path(__file__).parents[2] / "docs" / "VIEWS.md").read_text(encoding="utf-8")
    words = {
        rule.word.removesuffix("()") for rule in [*RULES.values(), *FUNCTIONS.values()] if rule.word.endswith("()")
    }
    assert {word for word in words if f"`{word}" not in text} == set()


def declare_concealed(text: str):
    return declare_view("view", Source("view.sql", text), {("public", "people"): PEOPLE})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM people",
        "SELECT p.mail AS to_whom, id FROM people p WHERE p.mail IS NOT NULL",
        "SELECT id, mail IS NULL AS nobody FROM people",
    ],
)
def test_a_concealed_column_can_be_shown_and_tested_for_null(text):
    spec = declare_concealed(text)
    assert [each.column for each in spec.concealed.values()] == (["mail"] if "nobody" not in text else [])
    assert [each.column for each in mirror_spec(PEOPLE).concealed.values()] == ["mail"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, upper(mail) AS m FROM people",
        "SELECT id FROM people WHERE mail = 'a@b.c'",
        "SELECT id, mail = 'a@b.c' AS his FROM people",
        "SELECT id, (mail) AS m FROM people",
        "SELECT id, mail::varchar AS m FROM people",
    ],
)
def test_nothing_is_computed_from_a_concealed_column(text):
    with pytest.raises(ConfigError, match=r"column mail arrives concealed \(hash\)"):
        declare_concealed(text)
