"""Whether the stores of the views can be reached and keep what they are given: OpenSearch, Valkey or Redis.

In: settings. Out: findings. Messages name host and port only, since a URL may hold a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from opensearchpy import OpenSearch
from opensearchpy.exceptions import AuthenticationException, AuthorizationException, OpenSearchException, SSLError
from redis.backoff import NoBackoff
from redis.retry import Retry

from cdc.check.finding import Finding, critical, of_error, ok, warning
from cdc.errors import ConfigError
from cdc.settings import Cache, Search, Settings
from cdc.tls import is_of_tls, refusal

_TIMEOUT_S: Final = 5
_OLDEST_OPENSEARCH: Final = 2


def look_at_search(settings: Settings) -> list[Finding]:
    """OpenSearch answers, lets us in, and may make indexes and aliases of this pipeline."""
    search = settings.search
    at = _address(search.url)
    try:
        secret = search.secret()
        with closing(_opensearch(search, secret)) as client:
            version = str(client.info()["version"]["number"])
            client.indices.exists_alias(name=f"{settings.pipeline}-*")
            blocked = _read_only(client.cluster.get_settings(flat_settings=True))
    except (AuthenticationException, AuthorizationException) as error:
        message = f"OpenSearch at {at} refuses these credentials (HTTP {error.status_code})"
        return [critical("SEARCH_UNAUTHORISED", message, "check search.user and search.password_file")]
    except SSLError:
        return [of_error(refusal(search.url, search.ca_file, key="search.ca_file", who=f"OpenSearch at {at}"))]
    except OpenSearchException as error:
        message = f"OpenSearch at {at} does not answer ({type(error).__name__})"
        return [critical("SEARCH_UNAVAILABLE", message, "start it, or check search.url")]
    except ConfigError as error:
        return [of_error(error)]
    if blocked:
        message = f"OpenSearch at {at} is blocked for writes ({blocked})"
        return [critical("SEARCH_READ_ONLY", message, f'PUT _cluster/settings {{"persistent":{{"{blocked}":null}}}}')]
    return [ok("SEARCH", f"OpenSearch {version} at {at}")]


def look_at_cache(settings: Settings) -> list[Finding]:
    """Valkey or Redis answers, lets us in, runs scripts, and evicts nothing by itself."""
    cache = settings.cache
    at = _address(cache.url)
    try:
        with closing(_redis(cache)) as client:
            client.ping()
            client.eval("return 1", 0)
            return list(_eviction(client, at)) or [ok("CACHE", f"the cache at {at} answers")]
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        message = f"the cache at {at} refuses these credentials ({type(error).__name__})"
        return [critical("CACHE_UNAUTHORISED", message, "check cache.password_file, and the ACL of the user")]
    except redis.RedisError as error:
        if is_of_tls(error.__cause__ or error.__context__, cache.ca_file):
            return [of_error(refusal(cache.url, cache.ca_file, key="cache.ca_file", who=f"the cache at {at}"))]
        message = f"the cache at {at} does not answer ({type(error).__name__})"
        return [critical("CACHE_UNAVAILABLE", message, "start it, or check cache.url")]
    except ConfigError as error:
        return [of_error(error)]


def _opensearch(search: Search, secret: str | None) -> OpenSearch:
    options: dict[str, Any] = {"http_auth": (search.user, secret or "")} if search.user else {}
    if search.ca_file is not None:
        options["ca_certs"] = str(search.ca_file.expanduser())
    return OpenSearch(search.url, timeout=_TIMEOUT_S, max_retries=0, **options)


def _read_only(answer: dict[str, dict[str, str]]) -> str | None:
    for name in ("cluster.blocks.read_only", "cluster.blocks.read_only_allow_delete", "cluster.blocks.create_index"):
        if any(str(settings.get(name, "")).lower() == "true" for settings in answer.values()):
            return name
    return None


def _redis(cache: Cache) -> redis.Redis:
    secret = cache.secret()
    options: dict[str, Any] = {"password": secret} if secret is not None else {}
    if cache.ca_file is not None and cache.url.startswith(("rediss:", "valkeys:")):
        options["ssl_ca_certs"] = str(cache.ca_file.expanduser())
    return redis.Redis.from_url(
        "redis" + cache.url.removeprefix("valkey") if cache.url.startswith("valkey") else cache.url,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        **options,
    )


def _eviction(client: redis.Redis, at: str) -> Iterator[Finding]:
    try:
        found = client.config_get("maxmemory*")
    except redis.ResponseError:
        yield warning(
            "CACHE_POLICY_UNKNOWN",
            f"the cache at {at} does not let its maxmemory-policy be read",
            "make sure that it is noeviction, or allow CONFIG GET",
        )
        return
    policy, limit = str(found.get("maxmemory-policy")), int(found.get("maxmemory") or 0)
    if policy != "noeviction":
        make = critical if limit else warning
        yield make(
            "CACHE_EVICTS",
            f"the cache at {at} has maxmemory-policy {policy}: keys that it drops would be missing from views",
            "CONFIG SET maxmemory-policy noeviction",
        )


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
