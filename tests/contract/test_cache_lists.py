"""Lists of entries by parent, in step with the entries whatever happens to either; on a real Valkey."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from cdc.stack.server import Endpoint
from sinks.cache import CacheSink
from sinks.protocol import DELETE, UPSERT, Written
from sinks.spec import SinkOptions
from tests.support.sinks import Change, View, at, cache_client, cache_of

ITEMS = View({"line": "bigint", "order_id": "bigint", "name": "string"}, key=("line",), name="items")
BIG = 2**60 + 1
OLD: list[Change] = [
    (UPSERT, 10, (1, 7, "one")),
    (UPSERT, 11, (2, 7, "two")),
    (UPSERT, 12, (3, BIG, "three")),
    (UPSERT, 13, (4, None, "none's")),
]


class Bed:
    def __init__(self, valkey: Endpoint, spark: SparkSession, pipeline: str, client: Any) -> None:
        self.valkey, self.spark, self.pipeline, self.client = valkey, spark, pipeline, client

    def sink(self, view: View = ITEMS, **options: str) -> CacheSink:
        settings = cache_of(self.valkey)
        return CacheSink(settings, self.pipeline, view.spec, SinkOptions("cache", {"list": "order_id", **options}))

    def filled(self) -> CacheSink:
        sink = self.sink()
        assert sink.replace(ITEMS.frame(self.spark, OLD), at(100)) == Written(upserts=4)
        return sink

    def write(self, sink: CacheSink, lsn: int, *changes: Change) -> None:
        sink.write(ITEMS.frame(self.spark, changes), at(lsn))

    @property
    def prefix(self) -> str:
        return f"afterimage:list:{self.pipeline}:items:{self.client.get(f'{self.pipeline}:items:generation')}:"

    def lists(self) -> dict[str, dict[str, str]]:
        """By parent: the names of its children."""
        found = {key.removeprefix(self.prefix): key for key in self.client.scan_iter(match=self.prefix + "*")}
        return {
            parent: {field: json.loads(value)["name"] for field, value in self.client.hgetall(key).items()}
            for parent, key in found.items()
        }


@pytest.fixture
def bed(valkey: Endpoint, spark: SparkSession, pipeline_name: str) -> Iterator[Bed]:
    with cache_client(valkey) as client:
        yield Bed(valkey, spark, pipeline_name, client)


def test_children_come_move_and_go(bed: Bed):
    sink = bed.filled()
    assert bed.lists() == {"7": {"1": "one", "2": "two"}, str(BIG): {"3": "three"}}
    entry = f"{bed.pipeline}:items:{bed.client.get(f'{bed.pipeline}:items:generation')}:1"
    assert bed.client.get(entry) == f'{{"_lsn":"{10:020}","_parent":"7","line":1,"order_id":7,"name":"one"}}'
    assert bed.client.hget(bed.prefix + "7", "1") == bed.client.get(entry)
    bed.write(sink, 200, (UPSERT, 150, (2, BIG, "moved")), (UPSERT, 151, (1, 7, "changed")))
    assert bed.lists() == {"7": {"1": "changed"}, str(BIG): {"2": "moved", "3": "three"}}
    bed.write(sink, 300, (DELETE, 250, (1,)), (UPSERT, 251, (3, None, "nobody's")), (UPSERT, 252, (4, 8, "eight")))
    assert bed.lists() == {str(BIG): {"2": "moved"}, "8": {"4": "eight"}}
    assert not bed.client.exists(bed.prefix + "7")
    assert set(sink.rows()) == {(2, BIG, "moved"), (3, None, "nobody's"), (4, 8, "eight")}


def test_late_and_repeated_batches_leave_lists_as_they_are(bed: Bed):
    sink = bed.filled()
    batch: list[Change] = [(UPSERT, 250, (1, 8, "newest")), (DELETE, 251, (2,))]
    bed.write(sink, 300, *batch)
    before = bed.lists()
    bed.write(sink, 300, *batch)
    bed.write(sink, 300, (UPSERT, 150, (1, 7, "late")), (UPSERT, 151, (2, 7, "late")), (DELETE, 152, (1,)))
    assert bed.lists() == before == {"8": {"1": "newest"}, str(BIG): {"3": "three"}}


def test_a_random_history_leaves_lists_that_equal_the_rows(bed: Bed):
    sink, chance, rows = bed.filled(), random.Random(5), {key: row for _, _, row in OLD for key in row[:1]}
    for lsn in range(200, 700, 100):
        batch: dict[int, Change] = {}
        for place in range(300):
            key = chance.randrange(120)
            if chance.random() < 0.3:
                batch[key] = (DELETE, lsn - 99, (key,))
            else:
                batch[key] = (UPSERT, lsn - 99, (key, chance.choice([None, 0, 1, 2, 3, BIG]), f"{lsn} {place}"))
        bed.write(sink, lsn, *batch.values())
        for key, (operation, _, row) in batch.items():
            rows.pop(key, None)
            if operation == UPSERT:
                rows[key] = row
    expected: dict[str, dict[str, str]] = defaultdict(dict)
    for line, parent, name in rows.values():
        if parent is not None:
            expected[str(parent)][str(line)] = name
    assert bed.lists() == expected
    assert sorted(sink.rows()) == sorted(rows.values())


def test_a_reader_of_a_list_never_sees_it_without_a_child_that_stays(bed: Bed):
    sink = bed.filled()
    done, seen = threading.Event(), set[frozenset[str]]()

    def read() -> None:
        while not done.is_set():
            seen.add(frozenset(bed.client.hkeys(bed.prefix + "7")))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for lsn in range(200, 1200, 100):
            bed.write(sink, lsn, (UPSERT, lsn - 1, (1, 7, f"to {lsn}")), (UPSERT, lsn - 1, (2, 7, f"to {lsn}")))
        sink.replace(ITEMS.frame(bed.spark, OLD[:3]), at(1300))
    finally:
        done.set()
        thread.join()
    assert seen == {frozenset({"1", "2"})}


def test_lists_of_a_former_generation_go(bed: Bed):
    sink = bed.filled()
    former = bed.prefix
    sink.replace(ITEMS.frame(bed.spark, OLD[:1]), at(200))
    assert bed.lists() == {"7": {"1": "one"}}
    assert 0 < bed.client.ttl(former + "7") <= 60
    assert bed.client.ttl(bed.prefix + "7") == -1


def test_odd_parents_and_keys_of_several_columns_have_lists_of_their_own(bed: Bed):
    view = View({"a": "string", "b": "boolean", "order_id": "string"}, key=("a", "b"), name="items")
    parents = ["", ":", "*", "é %", "null", '"', "a:b", None]
    rows = [(text, flag, parent) for text in ("", '","', "[x]") for flag in (True, False) for parent in parents[:1]]
    rows += [(f"k{place}", True, parent) for place, parent in enumerate(parents)]
    sink = bed.sink(view)
    sink.replace(view.frame(bed.spark, [(UPSERT, 10, row) for row in rows]), at(100))
    assert sorted(sink.rows(), key=str) == sorted(rows, key=str)
    keys = list(bed.client.scan_iter(match=bed.prefix + "*", count=1000))
    assert sorted(map(bed.client.hlen, keys)) == [1] * 6 + [7]
    sink.write(view.frame(bed.spark, [(DELETE, 150, row[:2]) for row in rows]), at(200))
    assert list(bed.client.scan_iter(match=bed.prefix + "*", count=1000)) == []


@pytest.mark.parametrize("planted", ["missing", "stray", "stray copy", "different", "wrong entry"])
def test_a_list_out_of_step_differs_and_is_mended(bed: Bed, planted: str):
    sink = bed.filled()
    right = [row for _, _, row in OLD]
    copy = bed.client.hget(bed.prefix + "7", "1")
    wrong = copy.replace("one", "wrong")
    match planted:
        case "missing":
            bed.client.hdel(bed.prefix + "7", "1")
        case "stray":
            bed.client.hset(bed.prefix + "9", "99", wrong.replace('"line":1', '"line":99'))
        case "stray copy":
            bed.client.hset(bed.prefix + "9", "1", copy)
        case "different":
            bed.client.hset(bed.prefix + "7", "1", wrong)
        case "wrong entry":
            bed.client.set(bed.prefix.replace("afterimage:list:", "") + "1", wrong)
    assert sorted(sink.rows()) != sorted(right, key=lambda row: row[0])
    fix = [(UPSERT, 100, OLD[0][2])] if planted != "stray" else [(DELETE, 100, (99,))]
    sink.mend(ITEMS.frame(bed.spark, fix), at(100))
    assert sorted(sink.rows()) == right
    assert bed.lists() == {"7": {"1": "one", "2": "two"}, str(BIG): {"3": "three"}}


@pytest.mark.parametrize(
    ("options", "named"), [({"list": "ordr_id"}, "order_id"), ({"ttl": "5"}, "ttl"), ({"value": "hash"}, "hash")]
)
def test_lists_that_cannot_be_kept_are_refused(bed: Bed, options: dict[str, str], named: str):
    with pytest.raises(ConfigError) as raised:
        bed.sink(ITEMS, **options)
    assert named in f"{raised.value.message} {raised.value.hint}"


def test_a_column_called_as_the_list_s_own_is_refused(bed: Bed):
    view = replace(ITEMS, columns={"line": "bigint", "order_id": "bigint", "_parent": "string"})
    with pytest.raises(ConfigError, match="_parent"):
        bed.sink(view)
