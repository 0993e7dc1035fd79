"""The cache sink before it connects: key patterns, options, addresses."""

from __future__ import annotations

import pytest

from cdc.errors import ConfigError
from cdc.settings import Cache
from sinks.cache import CacheSink
from sinks.cache.pattern import DEFAULT_PATTERN, parse_pattern
from sinks.cache.server import CacheServer
from sinks.spec import SinkOptions
from tests.support.sinks import ORDERS, View

TWO = ("a", "b")


NOWHERE = Cache(url="redis://127.0.0.1:1/0")


def make(view: View = ORDERS, settings: Cache = NOWHERE, options: dict[str, str] | None = None) -> CacheSink:
    return CacheSink(settings, "shop", view.spec, SinkOptions("cache", options or {}))


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        (DEFAULT_PATTERN, ("id",), "shop:orders:7:a:b"),
        (DEFAULT_PATTERN, TWO, 'shop:orders:7:["a:b","é"]'),
        ("order/{generation}/{a}/{b}", TWO, "order/7/a%3Ab/%C3%A9"),
        ("{view}:{generation}:{id}", ("id",), "orders:7:a%3Ab"),
        ("{generation}#{key}#x", ("id",), "7#a:b#x"),
        ("{view}/{generation}:{key}", ("view",), "orders/7:a:b"),
    ],
)
def test_patterns_are_filled(pattern: str, key: tuple[str, ...], expected: str):
    parsed = parse_pattern(pattern, "shop", "orders", key)
    assert parsed.entry_key(7, ("a:b", "é")[: len(key)]) == expected


@pytest.mark.parametrize(
    ("pattern", "key", "words"),
    [
        ("{pipeline}:{generation}:{kye}", ("id",), ["kye", "did you mean key?"]),
        ("{pipeline}:{generation}:{customerid}", ("customer_id",), ["customer_id"]),
        ("{pipeline}:{key}", ("id",), ["{generation}"]),
        ("{generation}:x", ("id",), ["id"]),
        ("{generation}:{a}", TWO, ["a, b"]),
        ("{generation}:{view}", ("view",), ["{key}"]),
        ("{generation}:{key}:{key}", ("id",), ["twice"]),
        ("{generation}{key}", ("id",), ["separator"]),
        ("{generation}:{a}-{b}", TWO, ["separator"]),
        ("{key}:{generation}", ("id",), ["begin"]),
        ("afterimage:{generation}:{key}", ("id",), ["afterimage:"]),
        ("{generation}:{key", ("id",), ["{key}"]),
        ("{generation}:{key}}", ("id",), ["brace"]),
        ("plain", ("id",), ["{generation}"]),
        ("", ("id",), ["{generation}"]),
    ],
)
def test_wrong_patterns_are_refused_with_what_is_wrong(pattern: str, key: tuple[str, ...], words: list[str]):
    with pytest.raises(ConfigError) as raised:
        parse_pattern(pattern, "shop", "orders", key)
    said = f"{raised.value.message} {raised.value.hint}"
    assert all(word in said for word in words), said


def test_the_glob_of_a_generation_escapes_what_is_special():
    parsed = parse_pattern("a[b]*?{generation}:{key}", "shop", "orders", ("id",))
    assert parsed.glob(7) == "a\\[b\\]\\*\\?7:*"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kye": "x"}, ["kye", "key"]),
        ({"value": "xml"}, ["xml", "json or hash"]),
        ({"ttl": "1h"}, ["1h"]),
        ({"ttl": "-1"}, ["-1"]),
        ({"key": "{key}"}, ["{generation}"]),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], words: list[str]):
    with pytest.raises(ConfigError) as raised:
        make(options=options)
    said = f"{raised.value.message} {raised.value.hint}"
    assert all(word in said for word in words), said


def test_a_column_called_as_the_version_is_refused():
    with pytest.raises(ConfigError, match="_lsn"):
        make(View({"id": "int", "_lsn": "string"}))


@pytest.mark.parametrize("url", ["http://x", "127.0.0.1:6379", "redis://h:port/0"])
def test_wrong_addresses_are_refused(url: str):
    with pytest.raises(ConfigError, match=r"cache\.url"):
        make(settings=Cache(url=url))


def test_the_place_and_the_sink_show_no_password():
    server = CacheServer("redis://user:canary@cache.example:6380/1", "canary")
    assert server.place == "cache.example:6380"
    assert "canary" not in repr(server)
    settings = Cache.model_validate({"url": "redis://:canary@h:1/0", "password": "canary"})
    assert "canary" not in repr(vars(make(settings=settings)))
