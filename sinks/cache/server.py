"""How the cache is reached, and what its errors mean.

In: the address and the password, picklable for executors. Out: a client whose every foreign error is translated.
Keeps true: no key, value or password in a message; what may pass by itself is transient, the rest asks for a person.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from cdc.errors import CdcError, ConfigError, OperatorError, TransientError
from cdc.tls import is_of_tls, refusal

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CacheServer:
    """A Valkey or Redis, or anything else that speaks their protocol and runs Lua."""

    url: str = field(repr=False)
    password: str | None = field(repr=False, default=None)
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("redis://", "rediss://", "unix://", "valkey://", "valkeys://")):
            raise ConfigError("cache.url is not an address of a cache", "for example redis://127.0.0.1:6379/0")
        try:
            self._make()
        except ValueError as error:
            raise ConfigError(f"cache.url is not an address: {error}", "for example redis://host:6379/0") from error

    @property
    def place(self) -> str:
        """Host and port, without the secrets that a URL may hold."""
        at = self._make().connection_pool.connection_kwargs
        return str(at.get("path") or f"{at.get('host', 'localhost')}:{at.get('port', 6379)}")

    @contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """A connection for one piece of work."""
        with self._make() as client:
            try:
                yield client
            except exceptions.RedisError as error:
                raise self._translated(error) from error

    def _make(self) -> redis.Redis:
        url = "redis" + self.url.removeprefix("valkey") if self.url.startswith("valkey") else self.url
        options: dict[str, Any] = {"password": self.password} if self.password is not None else {}
        if self.ca_file is not None and url.startswith("rediss:"):
            options["ssl_ca_certs"] = str(self.ca_file.expanduser())
        return redis.Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=ANSWER_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            **options,
        )

    def _translated(self, error: exceptions.RedisError) -> CdcError:
        match error:
            case exceptions.AuthenticationError():
                hint = "set cache.password_file or AFTERIMAGE_CACHE__PASSWORD (and the user, if any, in cache.url)"
                return OperatorError(f"the cache at {self.place} refuses the login", hint, code="CACHE_UNAUTHORISED")
            case exceptions.NoPermissionError():
                hint = (
                    "its user needs +@read +@write +@scripting +@connection on the keys of the views and afterimage:*"
                )
                return OperatorError(f"the cache at {self.place} denies a command", hint, code="CACHE_UNAUTHORISED")
            case exceptions.OutOfMemoryError():
                hint = "raise maxmemory, or keep fewer columns or views there; writing resumes where it stopped"
                return OperatorError(f"the cache at {self.place} is full", hint, code="CACHE_FULL")
            case exceptions.ConnectionError() if is_of_tls(error.__cause__ or error.__context__, self.ca_file):
                return refusal(self.url, self.ca_file, key="cache.ca_file", who=f"the cache at {self.place}")
            case exceptions.ConnectionError() | exceptions.TimeoutError() | exceptions.ReadOnlyError():
                return TransientError(
                    f"the cache at {self.place} does not answer", "is it up?", code="CACHE_UNAVAILABLE"
                )
            case exceptions.MasterDownError() | exceptions.TryAgainError():
                return TransientError(
                    f"the cache at {self.place} has no primary", "is it up?", code="CACHE_UNAVAILABLE"
                )
        # Of an unknown answer, only its first word: the rest may quote what was sent.
        word = str(error).partition(" ")[0]
        hint = "the server's log has more; a cluster needs to be reached through one node that holds all slots"
        return OperatorError(f"the cache at {self.place} refuses a command: {word}", hint, code="CACHE_REFUSED")
