"""What readers of a view's topic rely on, and what its writer survives; on a real Kafka."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ConfigResource
from pyspark.sql import SparkSession

from cdc.errors import OperatorError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, admin, consumer, producer
from cdc.names import view_topic
from cdc.settings import Kafka
from cdc.stack.server import Endpoint
from cdc.topics import Topics, table_topic
from sinks.kafka import KafkaSink, records
from sinks.kafka.records import POSITION_KEY
from sinks.kafka.topic import ViewTopic
from sinks.kafka.transaction import Writer
from sinks.protocol import DELETE, UPSERT, Written
from sinks.spec import SinkOptions
from tests.support.sinks import ORDERS, Change, at

OLD: list[Change] = [(UPSERT, 10, (1, 'é"', None)), (UPSERT, 11, (2, "two", None))]


class Bed:
    """A view's topic with its sinks and readers."""

    def __init__(self, kafka: Endpoint, spark: SparkSession, pipeline: str) -> None:
        self.settings = Kafka(bootstrap=kafka.address)
        self.spark, self.pipeline = spark, pipeline
        self.topic = view_topic(pipeline, ORDERS.name)

    def sink(self, **options: Any) -> KafkaSink:
        return KafkaSink(self.settings, self.pipeline, ORDERS.spec, SinkOptions("kafka", {}), **options)

    def filled(self, **options: Any) -> KafkaSink:
        made = self.sink(**options)
        made.replace(self.frame(*OLD), at(100))
        return made

    def frame(self, *changes: Change) -> Any:
        return ORDERS.frame(self.spark, changes)

    def writer(self) -> Writer:
        return Writer(self.settings, self.pipeline, ORDERS.name, self.topic)

    def records(self) -> list[tuple[Any, Any, list[Any] | None]]:
        with closing(consumer(self.settings, "reader")) as reader:
            reader.assign([TopicPartition(self.topic, 0, 0)])
            return [_parsed(message) for message in _up_to_now(reader)]


def _up_to_now(reader: Consumer) -> Iterator[Any]:
    while True:
        message = reader.poll(60)
        assert message is not None, "Kafka says nothing"
        if message.error() and message.error().code() == END_OF_PARTITION:
            return
        assert message.error() is None
        yield message


def _parsed(message: Any) -> tuple[Any, Any, list[Any] | None]:
    value = message.value()
    return json.loads(message.key()), None if value is None else json.loads(value), message.headers()


@pytest.fixture
def bed(kafka: Endpoint, spark: SparkSession, pipeline_name: str) -> Bed:
    return Bed(kafka, spark, pipeline_name)


def test_records_are_as_the_formats_say(bed: Bed):
    sink = bed.filled()
    sink.write(bed.frame((UPSERT, 150, (1, "", None)), (DELETE, 151, (2,))), at(200))
    found = bed.records()
    assert [key for key, _, _ in found] == [
        {"id": 1},
        {"id": 2},
        "position",
        {"id": 1},
        {"id": 2},
        {"id": 2},
        "position",
    ]
    first, changed, gone = found[0][1], found[3][1], found[4][1]
    assert (first["op"], first["before"], first["after"]) == ("r", None, {"id": 1, "name": 'é"', "price": None})
    source = {"connector": "afterimage", "name": bed.pipeline, "ts_ms": 100, "view": "orders", "commit_lsn": 10}
    assert first["source"] == source
    assert (changed["op"], changed["after"]["name"], changed["source"]["commit_lsn"]) == ("u", "", 150)
    assert (gone["op"], gone["before"], gone["after"]) == ("d", {"id": 2}, None)
    assert found[5][1:] == (None, [("position", b"151:0")])
    assert (found[6][1]["lsn"], found[6][1]["view"], found[6][1]["offsets"]["t"]) == ("0/C8", "orders", [200, 400])


def test_a_commit_is_done_when_readers_see_it(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    """Kafka answers a commit before the markers that end it lie in the partition: readers see its former end."""
    bounds, hidden, late = ViewTopic._bounds, list[int](), list[int]()

    def before_the_markers(topic: ViewTopic, client: Consumer) -> tuple[int, int]:
        low, high = bounds(topic, client)
        if high > hidden[0] and len(late) < 5:
            late.append(high)
            return low, hidden[0]
        return low, high

    monkeypatch.setattr(ViewTopic, "_bounds", before_the_markers)
    hidden.append(0)
    sink = bed.filled()
    assert len(late) == 5
    assert set(sink.rows()) == {row for _, _, row in OLD}
    late.clear()
    hidden[:] = [len(bed.records()) + 1]
    sink.write(bed.frame((DELETE, 151, (2,))), at(200))
    assert len(late) == 5
    assert sink.position() == at(200)


def test_the_topic_is_kept_by_compaction(bed: Bed):
    bed.filled()
    resource = ConfigResource(ConfigResource.Type.TOPIC, bed.topic)
    client = admin(bed.settings)
    described = client.describe_configs([resource])[resource].result()
    assert described["cleanup.policy"].value == "compact"


def test_readers_see_whole_batches_and_each_once(bed: Bed):
    sink = bed.filled()
    last, batches = 1_100, list[set[str]]()

    def read() -> None:
        batch: set[str] = set()
        with closing(consumer(bed.settings, "follower")) as reader:
            reader.assign([TopicPartition(bed.topic, 0, 0)])
            while True:
                for message in _up_to_now(reader):
                    key, value, _ = _parsed(message)
                    if key != "position":
                        batch.add(value["after"]["name"])
                        continue
                    batches.append(batch)
                    batch = set()
                    if value["lsn"] == f"0/{last:X}":
                        return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    for lsn in range(200, last + 1, 100):
        sink.write(bed.frame(*[(UPSERT, lsn - 1, (key, f"to {lsn}", None)) for key in range(500)]), at(lsn))
        if lsn == 600:
            _left_open(bed)
            sink = bed.sink()
            assert sink.position() == at(600)
    thread.join(60)
    assert batches[1:] == [{f"to {lsn}"} for lsn in range(200, last + 1, 100)]


def _left_open(bed: Bed) -> None:
    """What a writer leaves that was killed in the middle of a batch: its records are in the log, uncommitted."""
    options = {"transactional.id": f"afterimage-{bed.pipeline}-view-orders"}
    left = producer(bed.settings, "killed", **options)
    left.init_transactions(30)
    left.begin_transaction()
    for key in range(50):
        left.produce(bed.topic, b'{"after":{"id":1,"name":"half","price":null}}', b'{"id":%d}' % key, partition=0)
    assert left.flush(30) == 0


def test_a_batch_that_was_killed_is_neither_lost_nor_there_twice(bed: Bed):
    bed.filled()
    _left_open(bed)
    again = bed.sink()
    assert again.position() == at(100)
    assert {row[0] for row in again.rows()} == {1, 2}
    assert again.write(bed.frame((UPSERT, 150, (3, "three", None))), at(200)) == Written(upserts=1)
    assert set(again.rows()) == {(1, 'é"', None), (2, "two", None), (3, "three", None)}
    assert [key for key, _, _ in bed.records()][3:] == [{"id": 3}, "position"]


def test_a_writer_that_was_fenced_while_it_wrote_has_written_nothing(bed: Bed):
    sink = bed.filled()
    bed.writer()
    with pytest.raises(TransientError) as raised:
        sink.write(bed.frame((UPSERT, 150, (3, "late", None))), at(200))
    assert raised.value.code == "SINK_OVERTAKEN"
    assert {row[0] for row in sink.rows()} == {1, 2}
    sink.write(bed.frame((UPSERT, 150, (3, "in time", None))), at(200))
    assert (3, "in time", None) in set(sink.rows())


def test_a_content_too_long_for_one_transaction_has_no_position_until_it_is_whole(bed: Bed):
    sink = bed.filled(part_s=-1.0)
    new = bed.frame(*[(UPSERT, 150, (key, f"new {key}", None)) for key in range(2, 6)])
    with pytest.raises(RuntimeError, match="killed"):
        sink._in_parts(sink._writer(sink._topic.look().stored), _killed_after_two(), _standing(sink))
    assert bed.sink().position() is None
    again = bed.sink(part_s=-1.0)
    assert again.position() is None
    assert again.replace(new, at(300)) == Written(upserts=4)
    assert again.position() == at(300)
    assert set(again.rows()) == {(key, f"new {key}", None) for key in range(2, 6)}
    assert [value for key, value, _ in bed.records() if key == {"id": 1}][-1] is None


def _killed_after_two() -> Iterator[tuple[records.Change, str]]:
    for key in (7, 8):
        yield records.Change(f'{{"id":{key}}}', f'{{"id":{key},"name":"part","price":null}}', 150, ""), "r"
    raise RuntimeError("killed")


def _standing(sink: KafkaSink) -> Any:
    stored = sink._topic.look().stored
    assert stored is not None
    return stored.standing


def test_a_topic_of_somebody_else_is_left_alone(bed: Bed):
    _make_topic(bed, 1)
    other = producer(bed.settings, "other")
    other.produce(bed.topic, b"{}", b'{"id":1}')
    assert other.flush(30) == 0
    with pytest.raises(OperatorError) as raised:
        bed.filled()
    assert raised.value.code == "VIEW_TOPIC_TAKEN"
    assert len(bed.records()) == 1


def test_a_topic_of_another_shape_is_left_alone(bed: Bed):
    _make_topic(bed, 2)
    with pytest.raises(OperatorError, match="not of this view"):
        bed.filled()


def test_rows_that_no_record_can_hold_are_refused_alone(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    sink = bed.filled()
    monkeypatch.setattr(records, "RECORD_BYTES_MAX", 1_000)
    done = sink.write(bed.frame((UPSERT, 150, (3, "x" * 1_000, None)), (UPSERT, 151, (4, "y", None))), at(200))
    assert (done.upserts, [row.lsn for row in done.rejected]) == (1, [150])
    assert {row[0] for row in sink.rows()} == {1, 2, 4}


def test_what_somebody_else_wrote_is_shown_as_it_is(bed: Bed):
    sink = bed.filled()
    other = producer(bed.settings, "other")
    other.produce(bed.topic, b'{"after":{"id":2,"name":"wrong","price":"cheap"}}', b'{"id":2}')
    assert other.flush(30) == 0
    assert sink.position() == at(100)
    assert set(sink.rows()) == {(1, 'é"', None), (2, "wrong", "cheap")}
    other.produce(bed.topic, None, POSITION_KEY)
    assert other.flush(30) == 0
    assert sink.position() is None


def _make_topic(bed: Bed, partitions: int) -> None:
    topics = Topics(bed.settings)
    topics.ensure([table_topic(bed.topic, partitions)])
    topics.ends({bed.topic: partitions})
