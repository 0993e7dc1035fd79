"""What searchers rely on, and what the index survives; on a real OpenSearch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import urllib3
from pyspark.sql import SparkSession

from cdc.errors import OperatorError, TransientError
from cdc.settings import Search
from cdc.stack.server import Endpoint
from sinks.entries import Entry
from sinks.protocol import UPSERT, Written
from sinks.search import SearchSink
from sinks.search.bulk import BulkWriter
from sinks.search.generations import Generations
from sinks.search.mapping import index_body
from sinks.search.server import SearchServer
from sinks.spec import SinkOptions
from sinks.standing import Standing
from tests.support.sinks import ORDERS, View, at

TYPES = {"id": "bigint", "name": "string"}
Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def ask(opensearch: Endpoint) -> Ask:
    """Requests as any other client makes them."""

    def send(method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        payload = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        answer = urllib3.request(method, f"http://{opensearch.address}{path}", body=payload, headers=headers)
        return answer.status, answer.json() if answer.data else {}

    return send


@pytest.fixture
def server(opensearch: Endpoint) -> SearchServer:
    return SearchServer(f"http://{opensearch.address}")


@pytest.fixture
def generations(pipeline_name: str) -> Generations:
    return Generations(pipeline_name, "orders", "declared")


def sink_of(
    server: SearchServer, pipeline: str, view: View = ORDERS, retired_s: float = 30, **options: str
) -> SearchSink:
    return SearchSink(Search(url=server.url), pipeline, view.spec, SinkOptions("search", options), retired_s=retired_s)


def standing(generation: int, lsn: int) -> Standing:
    return Standing("orders", generation, "declared", TYPES, at(lsn))


def load(server: SearchServer, generations: Generations, *entries: Entry) -> BulkWriter:
    """A generation with these rows, behind the alias."""
    writer = loading(server, generations)
    assert list(writer(iter(entries))) == []
    with server.connection() as connection:
        generations.switch(connection, standing(generation_of(writer), 100), generations.stored(connection))
    return writer


def loading(server: SearchServer, generations: Generations, overrides: dict[str, Any] | None = None) -> BulkWriter:
    with server.connection() as connection:
        generation = generations.begin(connection, index_body(TYPES, overrides or {}, "1h"))
    return BulkWriter(server, "orders", generations.write_alias(generation), tuple(TYPES))


def generation_of(writer: BulkWriter) -> int:
    return int(writer.alias.split("-g")[1].removesuffix("-write"))


def upsert(key: str, lsn: int, name: str = '"x"') -> Entry:
    return Entry(False, (key,), (key, name), lsn, f"t:0:{key}")


def delete(key: str, lsn: int) -> Entry:
    return Entry(True, (key,), (key, None), lsn, f"t:0:{key}")


def test_what_the_position_says_can_be_searched_at_once(
    spark: SparkSession, server: SearchServer, pipeline_name: str, ask: Ask
):
    sink = sink_of(server, pipeline_name)
    sink.replace(ORDERS.frame(spark, [(UPSERT, 10, (1, "brown fox", Decimal("9.50")))]), at(100))
    sink.write(ORDERS.frame(spark, [(UPSERT, 110, (2, "brown bear", Decimal("10.50")))]), at(200))
    found = search(
        ask,
        pipeline_name,
        {"bool": {"must": [{"match": {"name": "BROWN"}}], "filter": [{"range": {"price": {"gt": 10}}}]}},
    )
    assert found == [{"id": 2, "name": "brown bear", "price": "10.50"}]
    assert search(ask, pipeline_name, {"term": {"name.keyword": "brown fox"}})[0]["id"] == 1


def search(ask: Ask, pipeline: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    status, body = ask("POST", f"/{pipeline}-orders/_search", {"query": query})
    assert status == 200, body
    return [hit["_source"] for hit in body["hits"]["hits"]]


def test_a_row_that_the_mapping_refuses_is_reported_and_the_others_are_written(
    spark: SparkSession, server: SearchServer, pipeline_name: str
):
    sink = sink_of(server, pipeline_name, mapping='{"name": {"type": "integer"}}')
    rows = [(UPSERT, 10, (1, "5", None)), (UPSERT, 11, (2, "canary", None)), (UPSERT, 12, (3, "6", None))]
    done = sink.replace(ORDERS.frame(spark, rows), at(100))
    assert done.upserts == 2
    ((at_, lsn, reason),) = [(each.at, each.lsn, each.reason) for each in done.rejected]
    assert (at_, lsn, reason) == ("t:0:11", 11, "mapper_parsing_exception in field name")
    assert {row[0] for row in sink.rows()} == {1, 3}
    assert sink.position() == at(100)
    again = sink.write(
        ORDERS.frame(spark, [(UPSERT, 110, (2, "7", None)), (UPSERT, 111, (1, "canary", None))]), at(200)
    )
    assert (again.upserts, [each.lsn for each in again.rejected]) == (1, [111])


def test_a_reason_names_a_field_and_quotes_nothing(server: SearchServer, generations: Generations):
    keyword = {"name": {"type": "keyword"}}
    writer = loading(server, generations, keyword)
    (rejected,) = writer(iter([upsert("1", 10, json.dumps("canary" * 10_000))]))
    assert rejected.reason == "illegal_argument_exception in field name"


def test_late_writes_do_not_revive_what_was_deleted(server: SearchServer, generations: Generations, ask: Ask):
    writer = load(server, generations, upsert("1", 10))
    list(writer(iter([delete("1", 20), delete("unseen", 20)])))
    list(writer(iter([upsert("1", 15), upsert("unseen", 15)])))
    ask("POST", f"/{generations.alias}/_refresh")
    assert ask("GET", f"/{generations.alias}/_count")[1]["count"] == 0


def test_a_deleted_index_is_not_made_again_by_a_write(server: SearchServer, generations: Generations, ask: Ask):
    writer = load(server, generations, upsert("1", 10))
    index = generations.index(generation_of(writer))
    ask("DELETE", f"/{index}")
    with pytest.raises(TransientError, match="went away"):
        list(writer(iter([upsert("2", 11)])))
    for name in (index, writer.alias, generations.alias):
        assert ask("GET", f"/{name}")[0] == 404


def test_a_late_writer_of_a_former_generation_reaches_only_that_one(
    server: SearchServer, generations: Generations, ask: Ask
):
    former = load(server, generations, upsert("1", 10))
    load(server, generations, upsert("1", 10))
    list(former(iter([upsert("zombie", 999)])))
    ask("POST", f"/{generations.alias}*/_refresh")
    assert ask("GET", f"/{generations.alias}/_count")[1]["count"] == 1


def position(server: SearchServer, generations: Generations) -> Any:
    with server.connection() as connection:
        stored = generations.stored(connection)
    return stored and stored.standing.position


def test_an_alias_that_was_moved_or_points_at_two_indexes_has_no_position(
    server: SearchServer, generations: Generations, ask: Ask
):
    writer = load(server, generations)
    index, alias, other = generations.index(generation_of(writer)), generations.alias, generations.alias + "-other"
    assert position(server, generations) == at(100)
    ask("PUT", f"/{other}")
    ask("POST", "/_aliases", {"actions": [{"add": {"index": other, "alias": alias}}]})
    assert position(server, generations) is None
    ask("POST", "/_aliases", {"actions": [{"remove": {"index": index, "alias": alias}}]})
    assert position(server, generations) is None


def test_an_index_restored_under_the_same_name_has_no_position(
    server: SearchServer, generations: Generations, ask: Ask
):
    index = generations.index(generation_of(load(server, generations)))
    ask("DELETE", f"/{index}")
    ask("PUT", f"/{index}", {"aliases": {generations.alias: {}}})
    assert position(server, generations) is None


def test_lost_positions_mean_no_position(server: SearchServer, generations: Generations, ask: Ask):
    load(server, generations)
    ask("DELETE", f"/{generations.positions}")
    assert position(server, generations) is None


def test_two_writers_do_not_both_move_the_position(server: SearchServer, generations: Generations):
    load(server, generations)
    with server.connection() as connection:
        read = generations.stored(connection)
        assert read is not None
        generations.move(connection, read, at(150))
        with pytest.raises(TransientError):
            generations.move(connection, read, at(140))
    assert position(server, generations) == at(150)


def test_former_indexes_stay_a_while_and_go_with_a_later_batch(
    spark: SparkSession, server: SearchServer, pipeline_name: str, ask: Ask
):
    frame = ORDERS.frame(spark, [(UPSERT, 10, (1, "a", None))])
    patient, prompt = sink_of(server, pipeline_name), sink_of(server, pipeline_name, retired_s=0)
    patient.replace(frame, at(100))
    patient.replace(frame, at(200))
    patient.advance(at(201))
    assert len(indexes(ask, pipeline_name)) == 2
    assert prompt.position() == at(201)
    prompt.advance(at(202))
    assert len(indexes(ask, pipeline_name)) == 1
    ask("POST", f"/{pipeline_name}-afterimage/_refresh")
    assert ask("GET", f"/{pipeline_name}-afterimage/_count")[1]["count"] == 1
    assert list(prompt.rows()) == [(1, "a", None)]


def indexes(ask: Ask, pipeline: str) -> list[str]:
    return list(ask("GET", f"/{pipeline}-orders-g*")[1])


def test_what_a_killed_load_left_is_left_alone_by_writes_and_removed_by_the_next_load(
    spark: SparkSession, server: SearchServer, pipeline_name: str, ask: Ask
):
    frame = ORDERS.frame(spark, [(UPSERT, 10, (1, "a", None))])
    sink = sink_of(server, pipeline_name, retired_s=0)
    sink.replace(frame, at(100))
    killed = loading(server, Generations(pipeline_name, "orders", "declared"))
    list(killed(iter([upsert("5", 10)])))
    sink.position()
    sink.advance(at(101))
    assert len(indexes(ask, pipeline_name)) == 2
    sink.replace(frame, at(200))
    sink.advance(at(201))
    assert len(indexes(ask, pipeline_name)) == 1
    assert killed.alias not in str(ask("GET", "/_alias"))


def test_an_index_in_the_alias_s_place_is_named(
    spark: SparkSession, server: SearchServer, pipeline_name: str, ask: Ask
):
    ask("PUT", f"/{pipeline_name}-orders")
    sink = sink_of(server, pipeline_name)
    assert sink.position() is None
    with pytest.raises(OperatorError, match=f"{pipeline_name}-orders") as raised:
        sink.replace(ORDERS.frame(spark, []), at(100))
    assert raised.value.hint


def test_a_mapping_that_opensearch_refuses_is_the_operator_s(
    spark: SparkSession, server: SearchServer, pipeline_name: str
):
    sink = sink_of(server, pipeline_name, mapping='{"name": {"type": "kyword"}}')
    with pytest.raises(OperatorError, match="mapping"):
        sink.replace(ORDERS.frame(spark, []), at(100))


def test_a_read_only_index_asks_for_a_person(server: SearchServer, generations: Generations, ask: Ask):
    writer = load(server, generations)
    index = generations.index(generation_of(writer))
    ask("PUT", f"/{index}/_settings", {"index.blocks.write": True})
    with pytest.raises(OperatorError) as raised:
        list(writer(iter([upsert("1", 10)])))
    assert raised.value.code == "SEARCH_READ_ONLY"


def test_a_stale_document_and_an_extra_one_are_seen(
    spark: SparkSession, server: SearchServer, pipeline_name: str, ask: Ask
):
    sink = sink_of(server, pipeline_name)
    sink.replace(ORDERS.frame(spark, [(UPSERT, 10, (1, "a", Decimal("1.00")))]), at(100))
    ask("PUT", f"/{pipeline_name}-orders/_doc/1", {"id": 1, "name": "a", "price": "1.01"})
    ask("PUT", f"/{pipeline_name}-orders/_doc/7", {"id": 7})
    assert set(sink.rows()) == {(1, "a", Decimal("1.01")), (7, None, None)}


def test_more_rows_than_one_page_are_all_read(spark: SparkSession, server: SearchServer, pipeline_name: str):
    view = replace(ORDERS, name="many")
    sink = sink_of(server, pipeline_name, view)
    rows = [(UPSERT, 10, (key, str(key), None)) for key in range(1203)]
    assert sink.replace(view.frame(spark, rows), at(100)) == Written(upserts=1203)
    assert sorted(row[0] for row in sink.rows()) == list(range(1203))
