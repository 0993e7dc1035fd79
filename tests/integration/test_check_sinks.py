"""What `check` finds in the views' stores, on real servers (and one that only knows how to say no)."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import redis
from opensearchpy import OpenSearch

from cdc.check import check
from cdc.check.finding import Level
from cdc.check.sinks import look_at_cache, look_at_search
from cdc.settings import Cache, Search, Settings, Source


def settings_for(**sections):
    return Settings(pipeline="stores", source=Source(database="unused", tables=("public.*",)), **sections)


def cache_at(endpoint, **changes):
    return settings_for(
        cache=Cache(**{"url": f"redis://{endpoint.address}/0", "password": endpoint.password, **changes})
    )


@pytest.fixture
def client(valkey):
    with redis.Redis(valkey.host, valkey.port, password=valkey.password, decode_responses=True) as client:
        yield client


def only(found):
    [finding] = found
    return finding


def test_a_cache_that_is_right(valkey):
    assert only(look_at_cache(cache_at(valkey))).level is Level.OK


@pytest.mark.parametrize("password", ["canary-wrong", None])
def test_a_cache_with_another_password(valkey, password):
    found = only(look_at_cache(cache_at(valkey, password=password)))
    assert found.code == "CACHE_UNAUTHORISED"
    assert "canary" not in repr(found)


def test_a_password_in_the_address_is_not_told():
    settings = settings_for(cache=Cache(url="redis://:canary@127.0.0.1:1/0"))
    found = only(look_at_cache(settings))
    assert found.code == "CACHE_UNAVAILABLE"
    assert "127.0.0.1:1" in found.message
    assert "canary" not in repr(found)


@pytest.mark.parametrize(("limit", "level"), [("0", Level.WARNING), ("512mb", Level.CRITICAL)])
def test_a_cache_that_evicts(valkey, client, limit, level):
    before = client.config_get("maxmemory*")
    try:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", limit)
        found = only(look_at_cache(cache_at(valkey)))
        assert (found.code, found.level) == ("CACHE_EVICTS", level)
        client.execute_command(*found.remedy.split())
        assert only(look_at_cache(cache_at(valkey))).level is Level.OK
    finally:
        client.config_set("maxmemory-policy", before["maxmemory-policy"])
        client.config_set("maxmemory", before["maxmemory"])


@pytest.mark.parametrize(
    ("rules", "code"),
    [(["+@all", "-config"], "CACHE_POLICY_UNKNOWN"), (["+@all", "-@scripting"], "CACHE_UNAUTHORISED")],
)
def test_a_cache_user_with_fewer_rights(valkey, client, rules, code):
    client.execute_command("ACL", "SETUSER", "small", "on", ">pw", "~*", *rules)
    try:
        settings = cache_at(valkey, url=f"redis://small@{valkey.address}/0", password="pw")
        assert only(look_at_cache(settings)).code == code
    finally:
        client.execute_command("ACL", "DELUSER", "small")


def test_an_unreadable_password_file(valkey, tmp_path):
    settings = cache_at(valkey, password_file=tmp_path / "absent")
    assert only(look_at_cache(settings)).code == "PASSWORD_FILE"


def test_a_search_that_is_right(opensearch):
    found = only(look_at_search(settings_for(search=Search(url=f"http://{opensearch.address}"))))
    assert found.level is Level.OK
    assert found.message.startswith("OpenSearch 2.")


def test_a_search_that_is_blocked(opensearch):
    url = f"http://{opensearch.address}"
    with OpenSearch(url) as client:
        client.cluster.put_settings({"persistent": {"cluster.blocks.read_only_allow_delete": True}})
        try:
            found = only(look_at_search(settings_for(search=Search(url=url))))
        finally:
            client.cluster.put_settings({"persistent": {"cluster.blocks.read_only_allow_delete": None}})
    assert found.code == "SEARCH_READ_ONLY"
    assert "cluster.blocks.read_only_allow_delete" in found.remedy


def test_a_search_that_is_away():
    found = only(look_at_search(settings_for(search=Search(url="http://me:canary@127.0.0.1:1"))))
    assert found.code == "SEARCH_UNAVAILABLE"
    assert "canary" not in repr(found)


class Refusing(BaseHTTPRequestHandler):
    """A server behind a login that nobody passes."""

    def do_GET(self):
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


def test_a_search_that_refuses_the_login():
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            search = Search(url=f"http://127.0.0.1:{server.server_port}", user="me", password="canary")
            found = only(look_at_search(settings_for(search=search)))
        finally:
            server.shutdown()
            thread.join()
    assert found.code == "SEARCH_UNAUTHORISED"
    assert "canary" not in repr(found)


def test_everything_at_once(source, kafka, opensearch, valkey):
    settings = source.model_copy(
        update={
            "kafka": source.kafka.model_copy(update={"bootstrap": kafka.address}),
            "search": Search(url=f"http://{opensearch.address}"),
            "cache": cache_at(valkey).cache,
        }
    )
    found = check(settings, {"search", "cache"})
    assert {each.level for each in found} == {Level.OK}
    assert {"SERVER", "KAFKA", "SEARCH", "CACHE", "FOLDERS"} <= {each.code for each in found}
    assert {"SEARCH", "CACHE"}.isdisjoint(each.code for each in check(settings, set()))
