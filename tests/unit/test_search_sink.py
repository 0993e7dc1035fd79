"""The search sink before it connects: options, mapping, settings."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import ConfigError
from cdc.settings import Search
from sinks.search import SearchSink
from sinks.search.mapping import index_body
from sinks.spec import SinkOptions
from tests.support.sinks import ORDERS, View

NOWHERE = Search(url="http://127.0.0.1:1")


def make(view: View = ORDERS, settings: Search = NOWHERE, options: dict[str, str] | None = None) -> SearchSink:
    return SearchSink(settings, "shop", view.spec, SinkOptions("search", options or {}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maping": "{}"}, ["maping", "mapping"]),
        ({"mapping": "{"}, ["JSON"]),
        ({"mapping": "[]"}, ["object"]),
        ({"mapping": '{"nmae": {"type": "keyword"}}'}, ["nmae", "name"]),
        ({"mapping": '{"name": "keyword"}'}, ["object"]),
    ],
)
def test_wrong_options_are_refused_with_the_nearest_name(options: dict[str, str], words: list[str]):
    with pytest.raises(ConfigError) as raised:
        make(options=options)
    said = f"{raised.value.message} {raised.value.hint}"
    assert all(word in said for word in words)


def test_columns_that_opensearch_keeps_for_itself_are_refused():
    with pytest.raises(ConfigError, match="_id"):
        make(View({"_id": "int"}, key=("_id",)))


def test_a_view_cannot_take_the_place_of_the_positions():
    with pytest.raises(ConfigError, match="afterimage"):
        make(View({"id": "int"}, name="afterimage"))


@pytest.mark.parametrize("url", ["127.0.0.1:9200", "ftp://x", "http://", "http://user:canary@host:1"])
def test_wrong_addresses_are_refused_without_their_secrets(url: str):
    with pytest.raises(ConfigError) as raised:
        make(settings=Search(url=url))
    assert "canary" not in f"{raised.value.message} {raised.value.hint}"


def test_making_a_sink_shows_no_password():
    sink = make(settings=Search.model_validate({"url": "http://h:1", "user": "u", "password": "canary"}))
    assert "canary" not in repr(vars(sink))


def test_every_type_has_a_field_and_overrides_win():
    types = {"a": "bigint", "b": "decimal(10,2)", "c": "timestamp", "d": "string", "e": "binary", "f": "string"}
    fields: dict[str, Any] = index_body(types, {"f": {"type": "keyword"}}, "2h")["mappings"]["properties"]
    assert {name: field["type"] for name, field in fields.items()} == dict(
        zip("abcdef", ["long", "double", "date", "text", "binary", "keyword"], strict=True)
    )
    assert fields["d"]["fields"]["keyword"]["type"] == "keyword"


def test_wide_views_fit_their_index():
    types = {f"c{n}": "string" for n in range(1600)}
    assert index_body(types, {}, "1h")["settings"]["index"]["mapping.total_fields.limit"] >= 3200
