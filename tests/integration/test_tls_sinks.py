"""OpenSearch and the cache over TLS: their authority is named in the configuration, and a stranger is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.check.sinks import look_at_cache, look_at_search
from cdc.errors import OperatorError
from cdc.settings import Cache, Search, Settings, Source
from cdc.stack.server import Endpoint
from sinks.cache.server import CacheServer
from sinks.search.server import SearchServer
from tests.support.certificates import DAY, Authority
from tests.support.secured import HOST_NAME, speaking_tls

WRONG = ("TLS_UNTRUSTED", "TLS_HOST_NAME", "TLS_EXPIRED", "TLS_FILE")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def settings(**sections: Any) -> Settings:
    return Settings(pipeline="none", source=Source(database="none", tables=("public.*",)), **sections)


def broken(wrong: str, authority: Authority, tmp_path: Path, port: int) -> Iterator[tuple[str, Path]]:
    """An address and an authority that do not fit."""
    lasts = -DAY if wrong == "TLS_EXPIRED" else DAY
    host = "127.0.0.1" if wrong == "TLS_HOST_NAME" else HOST_NAME
    trusted = {
        "TLS_UNTRUSTED": lambda: Authority(tmp_path / "other", "Another authority").certificate,
        "TLS_FILE": lambda: tmp_path / "absent.pem",
    }.get(wrong, lambda: authority.certificate)()
    with speaking_tls(port, authority.issue("server", HOST_NAME, lasts=lasts)) as secured:
        yield f"{host}:{secured}", trusted


def test_search_is_reached(opensearch: Endpoint, authority: Authority) -> None:
    with speaking_tls(opensearch.port, authority.issue("search", HOST_NAME)) as port:
        url = f"https://{HOST_NAME}:{port}"
        with SearchServer(url, ca_file=authority.certificate).connection() as connection:
            assert connection.ask("GET", "/").status == 200
        search = Search(url=url, ca_file=authority.certificate)
        assert [found.code for found in look_at_search(settings(search=search))] == ["SEARCH"]


def test_search_is_refused(opensearch: Endpoint, authority: Authority, wrong: str, tmp_path: Path) -> None:
    for at, trusted in broken(wrong, authority, tmp_path, opensearch.port):
        with (
            pytest.raises(OperatorError) as raised,
            SearchServer(f"https://{at}", ca_file=trusted).connection() as connection,
        ):
            connection.ask("GET", "/")
        assert raised.value.code == wrong
        found = look_at_search(settings(search=Search(url=f"https://{at}", ca_file=trusted)))
        assert [each.code for each in found] == [wrong]


def test_the_cache_is_reached(valkey: Endpoint, authority: Authority) -> None:
    with speaking_tls(valkey.port, authority.issue("cache", HOST_NAME)) as port:
        for scheme in ("rediss", "valkeys"):
            url = f"{scheme}://{HOST_NAME}:{port}/0"
            with CacheServer(url, valkey.password, authority.certificate).client() as client:
                assert client.ping()
            cache = Cache(url=url, password=valkey.password, ca_file=authority.certificate)
            assert [found.code for found in look_at_cache(settings(cache=cache))] == ["CACHE"]


def test_the_cache_is_refused(valkey: Endpoint, authority: Authority, wrong: str, tmp_path: Path) -> None:
    for at, trusted in broken(wrong, authority, tmp_path, valkey.port):
        with (
            pytest.raises(OperatorError) as raised,
            CacheServer(f"rediss://{at}/0", valkey.password, trusted).client() as client,
        ):
            client.ping()
        assert raised.value.code == wrong
        found = look_at_cache(settings(cache=Cache(url=f"rediss://{at}/0", password=valkey.password, ca_file=trusted)))
        assert [each.code for each in found] == [wrong]
