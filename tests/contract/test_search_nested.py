"""Documents with JSON and arrays in them, and a mapping that changes under its readers; on a real OpenSearch."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
import urllib3
from pyspark.sql import SparkSession

from cdc.settings import Search
from cdc.stack.server import Endpoint
from sinks.protocol import UPSERT
from sinks.search import SearchSink
from sinks.spec import SinkOptions
from tests.support.sinks import Change, View, at

BASKETS = View({"id": "bigint", "items": "string", "tags": "string", "marks": "string"}, name="baskets")
SPEC = replace(BASKETS.spec, printed={"items": "jsonb", "tags": "text[]", "marks": "integer[]"})
NESTED = json.dumps(
    {"items": {"type": "nested", "properties": {"sku": {"type": "keyword"}, "qty": {"type": "integer"}}}}
)
ROWS = [
    (1, '[{"qty": 2, "sku": "a"}, {"qty": 1, "sku": "b\\u0001\\"{}"}]', '{red,"light blue",NULL}', "{1,2}"),
    (2, '[{"qty": 1, "sku": "a"}]', '{"",NULL,"NULL","a\\"b"}', "{}"),
    (3, None, None, None),
    (4, "null", "{}", "{{1,2},{3,4}}"),
    (5, '{"qty" : 1,\n "sku" : "a"}', '[0:1]={x,"y,z"}', "[2:3]={7,8}"),
]


class Bed:
    def __init__(self, opensearch: Endpoint, spark: SparkSession, pipeline: str) -> None:
        self.url = f"http://{opensearch.address}"
        self.spark, self.pipeline = spark, pipeline

    def sink(self, **options: str) -> SearchSink:
        return SearchSink(Search(url=self.url), self.pipeline, SPEC, SinkOptions("search", options), retired_s=0.1)

    def frame(self, lsn: int, rows: list[Any]) -> Any:
        changes: list[Change] = [(UPSERT, lsn, row) for row in rows]
        return BASKETS.frame(self.spark, changes)

    def ask(self, path: str, body: Any = None) -> Any:
        payload = json.dumps(body).encode() if body is not None else None
        answer = urllib3.request(
            "POST" if body else "GET", self.url + path, body=payload, headers={"content-type": "application/json"}
        )
        assert answer.status == 200, answer.data
        return answer.json()

    def found(self, query: dict[str, Any]) -> dict[int, Any]:
        hits = self.ask(f"/{self.pipeline}-baskets/_search", {"query": query})["hits"]["hits"]
        return {hit["_source"]["id"]: hit["_source"] for hit in hits}


@pytest.fixture
def bed(opensearch: Endpoint, spark: SparkSession, pipeline_name: str) -> Bed:
    return Bed(opensearch, spark, pipeline_name)


def test_documents_hold_what_the_texts_say_and_the_texts_come_back(bed: Bed):
    sink = bed.sink()
    assert not sink.replace(bed.frame(10, ROWS[:2]), at(100)).rejected
    assert not sink.write(bed.frame(150, ROWS[2:]), at(200)).rejected
    assert set(sink.rows()) == set(ROWS)
    documents = bed.found({"match_all": {}})
    assert documents[1]["items"] == json.loads(ROWS[0][1] or "")
    assert documents[1]["tags"] == ["red", "light blue", None]
    assert [documents[key]["marks"] for key in (1, 2, 3, 4, 5)] == [[1, 2], [], None, [[1, 2], [3, 4]], [7, 8]]
    assert documents[5]["items"] == {"qty": 1, "sku": "a"}
    assert documents[5]["tags"] == ["x", "y,z"]
    assert set(bed.found({"range": {"marks": {"gte": 4}}})) == {4, 5}
    assert set(bed.found({"term": {"tags.keyword": "light blue"}})) == {1}


def test_nested_documents_are_searched_each_by_itself(bed: Bed):
    sink = bed.sink(mapping=NESTED)
    assert not sink.replace(bed.frame(10, ROWS[:3]), at(100)).rejected

    def having(sku: str, qty: int) -> set[int]:
        both = [{"term": {"items.sku": sku}}, {"term": {"items.qty": qty}}]
        return set(bed.found({"nested": {"path": "items", "query": {"bool": {"must": both}}}}))

    assert (having("a", 2), having("a", 1)) == ({1}, {2})
    assert set(sink.rows()) == set(ROWS[:3])


def test_what_the_mapping_does_not_know_is_refused_alone(bed: Bed):
    sink = bed.sink(mapping=NESTED)
    done = sink.replace(bed.frame(10, [ROWS[0], (9, '[{"colour": "canary"}]', None, None)]), at(100))
    assert (done.upserts, len(done.rejected)) == (1, 1)
    assert "canary" not in str(done.rejected)


def test_a_value_that_is_not_of_its_type_is_refused_alone(bed: Bed):
    sink = bed.sink()
    bad = [(8, "[1", None, None), (9, None, "no array", None), (10, "[" * 100_000 + "]" * 100_000, None, None)]
    done = sink.replace(bed.frame(10, [*ROWS, *bad]), at(100))
    assert (done.upserts, [row.reason.split()[-1] for row in done.rejected]) == (5, ["items", "tags", "items"])
    assert set(sink.rows()) == set(ROWS)


@pytest.mark.parametrize(
    ("field", "value"),
    [("items", [{"qty": 3, "sku": "a"}]), ("__texts", {"items": "[]"}), ("__texts", None), ("tags", ["red"])],
)
def test_a_document_that_was_changed_by_hand_differs(bed: Bed, field: str, value: Any):
    sink = bed.sink()
    sink.replace(bed.frame(10, ROWS[:1]), at(100))
    bed.ask(f"/{bed.pipeline}-baskets/_update/1?refresh=true", {"doc": {field: value}})
    assert set(sink.rows()) != set(ROWS[:1])


def test_readers_miss_no_document_while_the_mapping_changes(bed: Bed):
    """Another mapping is another index: filled beside the old one, then the alias moves, then the old one goes."""
    bed.sink().replace(bed.frame(10, ROWS), at(100))
    done, seen = threading.Event(), list[set[int]]()

    def read() -> None:
        while not done.is_set():
            seen.append(set(bed.found({"match_all": {}})))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for mapping in ('{"tags": {"type": "keyword"}}', '{"marks": {"type": "long"}}', "{}"):
            changed = bed.sink(mapping=mapping)
            assert changed.position() is None
            changed.replace(bed.frame(10, ROWS), at(200))
            changed.write(bed.frame(250, ROWS[:1]), at(300))
            reached = len(seen) + 5
            while len(seen) < reached and thread.is_alive():
                done.wait(0.01)
            changed.position()
            changed.advance(at(400))
    finally:
        done.set()
        thread.join()
    assert len(seen) > 15
    assert {frozenset(each) for each in seen} == {frozenset({1, 2, 3, 4, 5})}
    assert len(bed.ask(f"/{bed.pipeline}-baskets-g*/_settings")) <= 2
