"""What readers of the cache rely on, and what the cache survives; on a real Valkey."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from cdc.errors import OperatorError, TransientError
from cdc.settings import Cache
from cdc.stack.server import Endpoint
from sinks.cache import CacheSink
from sinks.cache.entries import CHUNK_KEYS, EntryForm, EntryWriter
from sinks.cache.generations import RETIRED_TTL_S, Generations
from sinks.cache.pattern import DEFAULT_PATTERN, parse_pattern
from sinks.cache.server import CacheServer
from sinks.entries import Entry
from sinks.protocol import UPSERT
from sinks.spec import SinkOptions
from sinks.standing import Standing
from tests.support.sinks import ORDERS, at, cache_client, cache_of

JSON = EntryForm(("id", "name"), is_hash=False, ttl_s=0, tombstone_ttl_s=100)


@pytest.fixture
def client(valkey: Endpoint) -> Iterator[Any]:
    with cache_client(valkey) as made:
        yield made


@pytest.fixture
def raw(valkey: Endpoint) -> Iterator[redis.Redis]:
    """As the sink's own code gets it."""
    with redis.Redis(valkey.host, valkey.port, password=valkey.password) as made:
        yield made


@pytest.fixture
def server(valkey: Endpoint) -> CacheServer:
    return CacheServer(f"redis://{valkey.address}/0", valkey.password)


@pytest.fixture
def generations(pipeline_name: str) -> Generations:
    return Generations(parse_pattern(DEFAULT_PATTERN, pipeline_name, "orders", ("id",)), "declared")


@pytest.fixture
def writer(server: CacheServer, generations: Generations, raw: redis.Redis) -> EntryWriter:
    """Writes into the live generation."""
    generation = generations.begin(raw)
    generations.switch(raw, standing(generation, 1), generations.stored(raw))
    return EntryWriter(server, generations.pattern, generation, JSON)


def standing(generation: int, lsn: int) -> Standing:
    return Standing("orders", generation, "declared", {"id": "bigint", "name": "string"}, at(lsn))


def upsert(key: str, lsn: int, name: str = '"x"') -> Entry:
    return Entry(False, (key,), (key, name), lsn, "t:0:0")


def delete(key: str, lsn: int) -> Entry:
    return Entry(True, (key,), (key, None), lsn, "t:0:0")


def stored(client: Any, writer: EntryWriter, key: str) -> Any:
    text = client.get(writer.pattern.entry_key(writer.generation, (key,)))
    return json.loads(text) if text else None


def test_json_entries_are_as_the_formats_say(client: Any, spark: SparkSession, valkey: Endpoint, pipeline_name: str):
    sink = CacheSink(cache_of(valkey), pipeline_name, ORDERS.spec, SinkOptions("cache", {}))
    sink.replace(ORDERS.frame(spark, [(UPSERT, 10, (1, 'é"', None))]), at(100))
    generation = client.get(f"{pipeline_name}:orders:generation")
    key = f"{pipeline_name}:orders:{generation}:1"
    assert client.get(key) == '{"_lsn":"00000000000000000010","id":1,"name":"é\\"","price":null}'
    assert client.ttl(key) == -1
    position = json.loads(client.get(f"{pipeline_name}:orders:position") or "")
    assert (position["lsn"], position["source_ts_us"]) == ("0/64", 100_000)
    assert position["offsets"]["t"] == [100, 200]


def test_hashes_leave_null_out_and_keep_the_empty_text(
    client: Any, spark: SparkSession, valkey: Endpoint, pipeline_name: str
):
    options = {"value": "hash", "ttl": "600", "key": "{pipeline}/{generation}/{id}"}
    sink = CacheSink(cache_of(valkey), pipeline_name, ORDERS.spec, SinkOptions("cache", options))
    sink.replace(ORDERS.frame(spark, [(UPSERT, 10, (1, "", None)), (UPSERT, 11, (2, "x", None))]), at(100))
    sink.write(ORDERS.frame(spark, [(UPSERT, 150, (2, None, None))]), at(200))
    generation = client.get(f"{pipeline_name}:orders:generation")
    assert client.hgetall(f"{pipeline_name}/{generation}/1") == {"_lsn": f"{10:020}", "id": "1", "name": ""}
    assert client.hgetall(f"{pipeline_name}/{generation}/2") == {"_lsn": f"{150:020}", "id": "2"}
    assert 0 < client.ttl(f"{pipeline_name}/{generation}/1") <= 600


def test_a_delete_leaves_a_tombstone_for_a_while(client: Any, writer: EntryWriter):
    writer(iter([upsert("1", 10), delete("1", 20)]))
    gone = f"afterimage:gone:{{{writer.pattern.entry_key(writer.generation, ('1',))}}}"
    assert client.get(gone) == f"{20:020}"
    assert 0 < client.ttl(gone) <= 100
    writer(iter([upsert("1", 19)]))
    assert stored(client, writer, "1") is None
    writer(iter([upsert("1", 21)]))
    assert stored(client, writer, "1")["_lsn"] == f"{21:020}"
    assert not client.exists(gone)


def test_versions_beyond_what_a_double_holds_are_told_apart(client: Any, writer: EntryWriter):
    high = 2**60 + 1
    writer(iter([upsert("1", high, '"new"'), upsert("1", high - 1, '"old"')]))
    assert stored(client, writer, "1")["name"] == "new"


def test_more_rows_than_one_call_takes_are_all_written(client: Any, writer: EntryWriter):
    keys = [str(n) for n in range(2 * CHUNK_KEYS + 1)]
    writer(iter([upsert(key, 10) for key in keys]))
    assert all(stored(client, writer, key) for key in keys)


def test_nothing_is_written_once_the_store_was_emptied_or_the_generation_dropped(
    client: Any, raw: redis.Redis, generations: Generations, writer: EntryWriter
):
    later = generations.begin(raw)
    generations.switch(raw, standing(later, 2), generations.stored(raw))
    with pytest.raises(TransientError, match="went away"):
        writer(iter([upsert("1", 10)]))
    client.delete(generations.pattern.generations_key)
    with pytest.raises(TransientError, match="went away"):
        EntryWriter(writer.server, writer.pattern, later, JSON)(iter([upsert("1", 10)]))
    assert list(client.scan_iter(match=f"*{generations.pattern.pipeline}*:1")) == []
    assert generations.stored(raw) is None


def test_what_a_killed_load_left_is_removed_by_the_next(
    client: Any, raw: redis.Redis, generations: Generations, writer: EntryWriter
):
    writer(iter([upsert("1", 10)]))
    killed = EntryWriter(writer.server, writer.pattern, generations.begin(raw), JSON)
    killed(iter([upsert("1", 10), upsert("2", 10)]))
    generations.sweep(raw)
    assert stored(client, killed, "1") is None
    assert stored(client, killed, "2") is None
    assert stored(client, writer, "1")
    with pytest.raises(TransientError):
        generations.switch(raw, standing(killed.generation, 2), generations.stored(raw))
    assert client.hgetall(generations.pattern.generations_key) == {str(writer.generation): "live"}


def test_entries_under_a_former_pattern_expire_as_well(
    client: Any, spark: SparkSession, valkey: Endpoint, pipeline_name: str
):
    rows = ORDERS.frame(spark, [(UPSERT, 10, (1, "x", None))])
    former = CacheSink(cache_of(valkey), pipeline_name, ORDERS.spec, SinkOptions("cache", {}))
    former.replace(rows, at(100))
    generation = client.get(f"{pipeline_name}:orders:generation")
    assert client.ttl(f"{pipeline_name}:orders:{generation}:1") == -1
    options = {"key": "card:{pipeline}:{generation}:{key}"}
    CacheSink(cache_of(valkey), pipeline_name, ORDERS.spec, SinkOptions("cache", options)).replace(rows, at(200))
    assert 0 < client.ttl(f"{pipeline_name}:orders:{generation}:1") <= RETIRED_TTL_S
    now = client.get(f"{pipeline_name}:orders:generation")
    assert client.ttl(f"card:{pipeline_name}:{now}:1") == -1


def test_former_entries_stay_for_readers_a_while_and_then_expire(
    client: Any, raw: redis.Redis, generations: Generations, writer: EntryWriter
):
    writer(iter([upsert("1", 10)]))
    later = generations.begin(raw)
    generations.switch(raw, standing(later, 2), generations.stored(raw))
    generations.sweep(raw)
    assert stored(client, writer, "1")
    assert 0 < client.ttl(writer.pattern.entry_key(writer.generation, ("1",))) <= RETIRED_TTL_S
    assert client.hgetall(generations.pattern.generations_key) == {str(later): "live"}


@pytest.mark.parametrize("lost", ["generation", "generations", "position"])
def test_any_lost_part_means_no_position(
    client: Any, raw: redis.Redis, generations: Generations, lost: str, writer: EntryWriter
):
    assert generations.stored(raw) is not None
    client.delete(f"{generations.pattern.pipeline}:orders:{lost}")
    assert generations.stored(raw) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"view":"orders"}', "\x00"])
def test_another_text_in_the_position_s_place_is_no_position(
    client: Any, raw: redis.Redis, generations: Generations, text: str, writer: EntryWriter
):
    client.set(generations.pattern.position_key, text)
    assert generations.stored(raw) is None


def test_a_failover_that_lost_writes_is_noticed(spark: SparkSession, valkey: Endpoint, client: Any, pipeline_name: str):
    sink = CacheSink(cache_of(valkey), pipeline_name, ORDERS.spec, SinkOptions("cache", {}))
    sink.replace(ORDERS.frame(spark, [(UPSERT, 10, (1, "a", None))]), at(100))
    before = client.get(f"{pipeline_name}:orders:position")
    sink.advance(at(200))
    client.set(f"{pipeline_name}:orders:position", before or "")
    with pytest.raises(TransientError):
        sink.advance(at(300))
    assert sink.position() == at(100)
    sink.advance(at(300))


def test_a_reader_during_a_switch_finds_the_one_or_the_other_generation(
    server: CacheServer, raw: redis.Redis, generations: Generations, writer: EntryWriter
):
    del writer
    seen: list[bool] = []
    done = threading.Event()

    def read() -> None:
        with server.client() as client:
            while not done.is_set():
                seen.append(generations.stored(client) is not None)

    reader = threading.Thread(target=read)
    reader.start()
    for lsn in range(2, 502):
        generations.switch(raw, standing(generations.begin(raw), lsn), generations.stored(raw))
    done.set()
    reader.join()
    assert len(seen) > 100
    assert all(seen)


def test_two_writers_do_not_both_move_the_position(raw: redis.Redis, generations: Generations, writer: EntryWriter):
    read = generations.stored(raw)
    assert read is not None
    generations.move(raw, read, at(50))
    with pytest.raises(TransientError):
        generations.move(raw, read, at(40))
    assert (found := generations.stored(raw)) is not None
    assert found.standing.position == at(50)


def test_a_corrupt_value_is_shown_as_it_is(spark: SparkSession, valkey: Endpoint, client: Any, pipeline_name: str):
    sink = CacheSink(cache_of(valkey), pipeline_name, ORDERS.spec, SinkOptions("cache", {}))
    sink.replace(ORDERS.frame(spark, [(UPSERT, 10, (1, "a", None))]), at(100))
    key = f"{pipeline_name}:orders:{client.get(f'{pipeline_name}:orders:generation')}:1"
    client.set(key, '{"_lsn":"00000000000000000010","id":1,"name":"b","price":"cheap"}')
    assert list(sink.rows()) == [(1, "b", "cheap")]


def refused(settings: Cache, pipeline: str) -> Any:
    with pytest.raises((OperatorError, TransientError)) as raised:
        CacheSink(settings, pipeline, ORDERS.spec, SinkOptions("cache", {})).position()
    assert raised.value.hint
    assert "canary" not in f"{raised.value.message} {raised.value.hint}"
    return raised.value


@pytest.mark.parametrize("password", [None, "canary"])
def test_a_wrong_or_missing_password_asks_for_a_person(valkey: Endpoint, pipeline_name: str, password: str | None):
    settings = Cache.model_validate({"url": f"redis://{valkey.address}/0", "password": password})
    error = refused(settings, pipeline_name)
    assert isinstance(error, OperatorError)
    assert error.code == "CACHE_UNAUTHORISED"


def test_a_cache_that_is_not_there_is_transient(pipeline_name: str):
    error = refused(Cache(url="redis://127.0.0.1:1/0"), pipeline_name)
    assert isinstance(error, TransientError)


def test_a_full_cache_asks_for_a_person_and_then_goes_on(client: Any, writer: EntryWriter):
    before = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(OperatorError) as raised:
            writer(iter([upsert("1", 10)]))
    finally:
        client.config_set("maxmemory", before)
    assert raised.value.code == "CACHE_FULL"
    writer(iter([upsert("1", 10)]))
    assert stored(client, writer, "1")


def test_an_unknown_refusal_quotes_nothing(client: Any, writer: EntryWriter):
    client.rpush(writer.pattern.entry_key(writer.generation, ("canary",)), "x")
    with pytest.raises(OperatorError) as raised:
        writer(iter([upsert("canary", 10)]))
    assert raised.value.code == "CACHE_REFUSED"
    assert "canary" not in str(raised.value)
