"""Names that Afterimage derives: by example, with hostile ones."""

from __future__ import annotations

import hashlib

import pytest

from cdc import names
from cdc.errors import ConfigError

HOSTILE = '"; drop table x; --/../é'


def test_plain_names_stay_as_they_are():
    assert names.topic_name("shop", "public", "order_items") == "shop.public.order_items"
    assert names.path_name("public", "order_items") == "public.order_items"


def test_underscores_of_schemas_are_escaped_for_kafka():
    assert names.topic_name("shop", "sales_eu", "order_items") == "shop.sales-5feu.order_items"
    assert names.path_name("sales_eu", "order_items") == "sales-5feu.order_items"


def test_every_other_byte_is_escaped():
    escaped = "-22-3b-20drop-20table-20x-3b-20-2d-2d-2f-2e-2e-2f-c3-a9"
    assert names.topic_name("shop", "a.b", HOSTILE) == f"shop.a-2eb.{escaped}"
    assert names.path_name("..", HOSTILE) == f"-2e-2e.{escaped}"


def test_long_names_are_cut_with_a_hash_and_stay_apart():
    longest = "é" * 31
    cut = [names.topic_name("shop", longest, longest + last) for last in "ab"]
    assert len(set(cut)) == 2
    assert all(len(name) == names.TOPIC_BYTES_MAX and "--" in name for name in cut)
    assert names.topic_name("p" * 40, "s" * 63, "t" * 63) == f"{'p' * 40}.{'s' * 63}.{'t' * 63}"


def test_pipeline_topics_have_two_parts():
    topics = {
        names.progress_topic("shop"),
        names.schema_topic("shop"),
        names.control_topic("shop"),
        names.snapshots_topic("shop"),
        names.dead_letter_topic("shop"),
        names.message_topic("shop"),
    }
    assert topics == {
        f"shop.{name}" for name in ("_progress", "_schema", "_control", "_snapshots", "_dead", "_messages")
    }


def test_index_names():
    assert names.index_alias("shop", "orders_search") == "shop-orders_search"
    assert names.index_name("shop", "orders_search", 7) == "shop-orders_search-g7"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (["42"], "42"),
        (["a", 'b"'], '["a","b\\""]'),
        (["é", "x"], '["é","x"]'),
        (["sha256:abc"], "sha256:" + hashlib.sha256(b"sha256:abc").hexdigest()),
        (["x" * 512], "x" * 512),
        (["é" * 257], "sha256:" + hashlib.sha256(("é" * 257).encode()).hexdigest()),
        ([""], "sha256:" + hashlib.sha256(b"").hexdigest()),
    ],
)
def test_document_ids(key, expected):
    assert names.document_id(key) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["id", "Name", "größe"], ("id", "Name", "größe")),
        (["a b", "a.b", "a`b", "a%20b"], ("a%20b", "a%2eb", "a%60b", "a%2520b")),
        (["a,;{}()\n\t=b"], ("a%2c%3b%7b%7d%28%29%0a%09%3db",)),
        (["__op", "___x", "_x"], ("%5f_op", "%5f__x", "_x")),
        (["id", "ID", "Id"], ("id", "%49%44", "%49d")),
        (["i", "ı"], ("i", "%c4%b1")),
        (["\u0085x"], ("%c2%85x",)),
    ],
)
def test_delta_columns(columns, expected):
    assert names.delta_columns(columns) == expected


def test_identifiers_are_always_quoted():
    assert names.quote_ident("Order") == '"Order"'
    assert names.quote_ident(HOSTILE) == '"""; drop table x; --/../é"'


def test_literals_keep_quotes_and_backslashes():
    assert names.quote_literal("it's") == "'it''s'"
    assert names.quote_literal("a\\'b") == " E'a\\\\''b'"


def test_nul_is_refused():
    with pytest.raises(ConfigError):
        names.quote_ident("a\0b")
    with pytest.raises(ConfigError):
        names.quote_literal("a\0b")
