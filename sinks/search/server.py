"""How OpenSearch is reached, and what its answers mean.

In: the address and the login, picklable for executors. Out: answers, with every foreign error translated. Keeps true:
no document, id or password in a message; of an error only its type is kept, since its reason may quote values.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError, SSLError

from cdc.errors import CdcError, ConfigError, OperatorError, TransientError
from cdc.tls import refusal

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 120.0
BUSY: Final = "SEARCH_BUSY"
NDJSON: Final = "application/x-ndjson"

_BUSY_STATUSES: Final = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `body` is its JSON object."""

    status: int
    body: dict[str, Any]

    @property
    def error_type(self) -> str:
        """OpenSearch's word for what went wrong; never its reason."""
        error = self.body.get("error")
        return str(error.get("type", "unknown")) if isinstance(error, dict) else "unknown"


@dataclass(frozen=True, slots=True)
class SearchServer:
    """An OpenSearch cluster, reached through one address."""

    url: str
    user: str | None = None
    password: str | None = field(repr=False, default=None)
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("search.url is not an address", "for example http://127.0.0.1:9200")
        if parts.username or parts.password:
            raise ConfigError("search.url holds a login", "put it into search.user and search.password_file")

    @contextmanager
    def connection(self) -> Iterator[SearchConnection]:
        """A connection for one piece of work."""
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=ANSWER_TIMEOUT_S)
        with self._pool(timeout) as pool:
            yield SearchConnection(self, pool)

    def _pool(self, timeout: urllib3.Timeout) -> urllib3.PoolManager:
        authority = str(self.ca_file.expanduser()) if self.ca_file else None
        return urllib3.PoolManager(retries=False, timeout=timeout, headers=self._headers(), ca_certs=authority)

    def _headers(self) -> dict[str, str]:
        if self.user is None:
            return {}
        login = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode("ascii")
        return {"authorization": f"Basic {login}"}


class SearchConnection:
    """Asks and translates."""

    def __init__(self, server: SearchServer, pool: urllib3.PoolManager) -> None:
        self._server = server
        self._pool = pool

    def ask(self, method: str, path: str, body: Any = None, *, accept: Collection[int] = ()) -> Answer:
        """One request with a JSON body, or with raw NDJSON; statuses other than 2xx and `accept` are raised."""
        is_raw = isinstance(body, bytes)
        payload = body if is_raw or body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {**self._pool.headers, "content-type": NDJSON if is_raw else "application/json"}
        url = self._server.url.rstrip("/") + path
        try:
            response = self._pool.request(method, url, body=payload, headers=headers)
            answer = Answer(response.status, _object(response.data))
        except HTTPError as error:
            raise self._unreachable(error) from error
        if not 200 <= answer.status < 300 and answer.status not in accept:
            raise self._refused(answer)
        return answer

    def _unreachable(self, error: HTTPError) -> CdcError:
        at = f"OpenSearch at {self._server.url}"
        if isinstance(error, SSLError) or (isinstance(error, MaxRetryError) and isinstance(error.reason, SSLError)):
            return refusal(self._server.url, self._server.ca_file, key="search.ca_file", who=at)
        return TransientError(f"{at} does not answer", "is it up?", code="SEARCH_UNAVAILABLE")

    def _refused(self, answer: Answer) -> CdcError:
        at = f"OpenSearch at {self._server.url}"
        if answer.status == 401:
            hint = "set search.user and search.password_file (or AFTERIMAGE_SEARCH__PASSWORD)"
            return OperatorError(f"{at} refuses the login", hint, code="SEARCH_UNAUTHORISED")
        if answer.error_type == "cluster_block_exception" and answer.status != 429:
            hint = 'free its disk, then: PUT _all/_settings {"index.blocks.read_only_allow_delete": null}'
            return OperatorError(f"{at} is read-only", hint, code="SEARCH_READ_ONLY")
        if answer.status == 403:
            hint = "its user needs all rights on indexes and aliases that begin with the pipeline's name"
            return OperatorError(f"{at} denies a request", hint, code="SEARCH_UNAUTHORISED")
        if answer.status in _BUSY_STATUSES:
            return TransientError(f"{at} is overloaded or starting", "it is tried again", code=BUSY)
        if answer.status >= 500:
            return TransientError(f"{at} failed: {answer.error_type}", "its log has more", code="SEARCH_UNAVAILABLE")
        message = f"{at} refuses a request: {answer.status} {answer.error_type}"
        return OperatorError(message, "its log has more", code="SEARCH_REFUSED")


def _object(data: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(data or b"{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
