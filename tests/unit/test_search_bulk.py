"""Bulk requests: what is sent, and what every kind of answer means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import stamina

from cdc.errors import CdcError, OperatorError, TransientError
from sinks.entries import Entry
from sinks.protocol import Rejected
from sinks.search import bulk
from sinks.search.bulk import BulkWriter, Outcome, outcome, reason
from sinks.search.server import SearchServer
from tests.fakes.search_server import scripted_search

DONE = {"index": {"status": 201}}
BUSY = {"index": {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "queue is full"}}}
BAD = {"index": {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "field [n] 'canary'"}}}
ALL_DONE = (200, {"errors": False})


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    with stamina.set_testing(True, attempts=4):
        yield


def upsert(key: str, value: str = "1") -> Entry:
    return Entry(False, (key,), (value,), 7, f"t:0:{key}")


def writer(url: str) -> BulkWriter:
    return BulkWriter(SearchServer(url), "orders", "p-orders-g1-write", ("n",))


def write(url: str, *entries: Entry) -> list[Rejected]:
    return list(writer(url)(iter(entries)))


def errors(*items: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"errors": True, "items": list(items)}


def test_documents_carry_the_version_and_deletes_have_no_body():
    with scripted_search(ALL_DONE) as search:
        write(search.url, upsert("a"), Entry(True, ("b",), (None,), 9, "t:0:1"))
    lines = [json.loads(line) for line in search.requests[0].splitlines()]
    assert lines == [
        {"index": {"_id": "a", "version": 7, "version_type": "external_gte"}},
        {"n": 1},
        {"delete": {"_id": "b", "version": 9, "version_type": "external_gte"}},
    ]


def test_only_overloaded_items_are_sent_again():
    with scripted_search(errors(DONE, BUSY, BAD, BUSY), errors(BUSY, DONE), ALL_DONE) as search:
        rejected = write(search.url, *map(upsert, "abcd"))
    assert search.sent_ids() == [["a", "b", "c", "d"], ["b", "d"], ["b"]]
    assert rejected == [Rejected("t:0:c", 7, "mapper_parsing_exception in field n")]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_overloaded_server_is_asked_again_and_then_given_up_for_now(status: int):
    with scripted_search((status, {}), ALL_DONE) as search:
        assert write(search.url, upsert("a")) == []
    with scripted_search((status, {})) as search, pytest.raises(TransientError):
        write(search.url, upsert("a"))
    assert len(search.requests) == 4


def test_a_request_that_is_too_large_is_halved_down_to_the_row():
    with scripted_search((413, {}), ALL_DONE, (413, {}), (413, {}), ALL_DONE) as search:
        rejected = write(search.url, *map(upsert, "abcd"))
    assert search.sent_ids() == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c"], ["d"]]
    assert [each.at for each in rejected] == ["t:0:c"]


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        ((401, {}), OperatorError, "SEARCH_UNAUTHORISED"),
        ((403, {"error": {"type": "security_exception"}}), OperatorError, "SEARCH_UNAUTHORISED"),
        ((403, {"error": {"type": "cluster_block_exception"}}), OperatorError, "SEARCH_READ_ONLY"),
        ((500, {"error": {"type": "null_pointer_exception"}}), TransientError, "SEARCH_UNAVAILABLE"),
        ((400, {"error": {"type": "parse_exception", "reason": "canary"}}), OperatorError, "SEARCH_REFUSED"),
        ((404, {}), TransientError, "SINK_LOST"),
        (
            errors({"index": {"status": 404, "error": {"type": "index_not_found_exception"}}}),
            TransientError,
            "SINK_LOST",
        ),
        (
            errors({"index": {"status": 403, "error": {"type": "cluster_block_exception"}}}),
            OperatorError,
            "SEARCH_READ_ONLY",
        ),
        (
            errors({"index": {"status": 500, "error": {"type": "engine_exception"}}}),
            TransientError,
            "SEARCH_UNAVAILABLE",
        ),
    ],
)
def test_what_cannot_go_on_is_raised_with_a_remedy(answer: Any, error: type[CdcError], code: str):
    with scripted_search(answer) as search, pytest.raises(error) as raised:
        write(search.url, upsert("a"))
    assert raised.value.code == code
    assert raised.value.hint
    assert "canary" not in raised.value.message


def test_a_server_that_is_not_there_is_transient():
    with scripted_search(ALL_DONE) as search:
        url = search.url
    with pytest.raises(TransientError, match="does not answer"):
        write(url, upsert("a"))


def test_chunks_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "CHUNK_ROWS", 3)
    monkeypatch.setattr(bulk, "CHUNK_BYTES", 400)
    with scripted_search(ALL_DONE) as search:
        write(search.url, *map(upsert, "abcd"), upsert("e", '"' + "x" * 300 + '"'), upsert("f"), upsert("g"))
    assert search.sent_ids() == [["a", "b", "c"], ["d"], ["e"], ["f", "g"]]
    assert all(body.endswith(b"\n") for body in search.requests)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"status": 200}, Outcome.DONE),
        ({"status": 409, "error": {"type": "version_conflict_engine_exception"}}, Outcome.DONE),
        ({"status": 404}, Outcome.DONE),
        ({"status": 503, "error": {}}, Outcome.AGAIN),
    ],
)
def test_older_versions_and_unseen_deletes_are_successes(result: dict[str, Any], expected: Outcome):
    assert outcome(result) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("failed to parse field [n] of type [integer] in document with id 'canary'. Preview: 'canary'", " in field n"),
        ('Document contains at least one immense term in field="n" (whose UTF8 ..), prefix: canary', " in field n"),
        ("failed to parse field [canary] of type [integer]", ""),
        ("canary", ""),
    ],
)
def test_reasons_name_the_field_and_never_a_value(text: str, expected: str):
    assert reason({"type": "some_exception", "reason": text}, ("n",)) == "some_exception" + expected
