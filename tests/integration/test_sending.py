"""Records handed to librdkafka many at a time: what a reader finds is what one call a record would have sent."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from cdc import compiled
from cdc.changes import Record
from cdc.kafka_clients import END_OF_PARTITION, consumer
from cdc.names import progress_topic
from cdc.progress import Kind, Progress
from cdc.publisher import Publisher
from cdc.sending import Counts, ManySender
from cdc.settings import Kafka
from cdc.stack.server import Endpoint
from cdc.topics import Topics, pipeline_topics, table_topic
from tests.support.compiling import built

PARTITIONS = 3
LARGE = b"x" * (600 << 10)


@pytest.fixture(params=[True, False], ids=["many", "one"])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(compiled, "records", built() if request.param else None)
    return bool(request.param)


def some_records(*topics: str) -> list[Record]:
    """More than go at once, over all partitions; every tombstone after its delete; another topic in between."""
    records: list[Record] = []
    for number in range(5_000):
        topic, partition, key = topics[number % 400 == 7], number % 7 % PARTITIONS, b"%d" % (number % 900)
        records.append(Record(topic, partition, key, b"value %d" % number))
        if number % 5 == 0:
            records.append(Record(topic, partition, key, None, f"77:{number}"))
    records.insert(3_000, Record(topics[0], 1, b"large", LARGE))
    return records


class Found(NamedTuple):
    """A message: its key, value and headers."""

    offset: int
    content: tuple[Any, ...]


def read(kafka: Kafka, topic: str) -> list[list[Found]]:
    """What a reader of committed records finds, by partition."""
    found: list[list[Found]] = [[] for _ in range(PARTITIONS)]
    reader = consumer(kafka, "test")
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    left = set(range(PARTITIONS))
    while left:
        message = reader.poll(20)
        assert message is not None, "the reader heard nothing more"
        partition, offset, error = message.partition(), message.offset(), message.error()
        assert partition is not None
        if error is None:
            assert offset is not None
            found[partition].append(Found(offset, (message.key(), message.value(), message.headers())))
        else:
            assert error.code() == END_OF_PARTITION, error
            left.discard(partition)
    reader.close()
    return found


def wanted(records: list[Record], topic: str) -> list[list[tuple[Any, ...]]]:
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(PARTITIONS)]
    for record in records:
        if record.topic == topic:
            headers = [("position", record.position.encode())] if record.position is not None else None
            found[record.partition].append((record.key, record.value, headers))
    return found


def test_a_reader_finds_every_record_in_its_order(kafka: Endpoint, pipeline_name: str, many: bool) -> None:
    settings = Kafka(bootstrap=kafka.address)
    topics = [f"{pipeline_name}.a", f"{pipeline_name}.b"]
    Topics(settings).ensure([*pipeline_topics(pipeline_name), *(table_topic(topic, PARTITIONS) for topic in topics)])
    records = some_records(*topics)
    publisher = Publisher(settings, pipeline_name, 30)
    try:
        publisher.start()
        # With a producer that knows nothing of its topics yet, and then with one that does.
        for number in (1, 2):
            publisher.produce(records)
            ends = publisher.seal()
            publisher.commit(Progress(number, Kind.IDLE, 0, 8 * number, 0, len(records), 0, {}, "1", None))
    finally:
        publisher.close()
    for topic in topics:
        found = read(settings, topic)
        contents = [[message.content for message in messages] for messages in found]
        assert contents == [once + once for once in wanted(records, topic)]
        # The first commit's markers may come before the second's records, among them or after them.
        assert ends[topic] == {partition: messages[-1].offset + 1 for partition, messages in enumerate(found)}
    assert progress_topic(pipeline_name) not in ends


def nobody() -> Producer:
    """A producer whose broker is not there: what it is given stays in its queue."""
    return Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


def sent(records: list[Record], counts: Counts) -> tuple[int, int]:
    producer = nobody()
    try:
        return ManySender(producer, 100, 100, 40).send(records, 0, counts, 0)
    finally:
        producer.purge()


PLAIN = Record("t", 0, b"k", b"1234567890")
TOMBSTONE = Record("t", 0, b"k", None, "1:1")


@pytest.mark.parametrize(
    ("records", "goes"),
    [
        ([PLAIN, TOMBSTONE, PLAIN], 3),
        ([PLAIN, PLAIN._replace(partition=1), PLAIN], 1),
        ([PLAIN, PLAIN._replace(partition=7), PLAIN], 1),
        ([PLAIN, PLAIN._replace(topic="u"), PLAIN], 1),
        ([PLAIN, PLAIN._replace(value=b"x" * 40), PLAIN], 1),
        ([PLAIN] * 11, 10),
    ],
    ids=["all", "first of its partition", "unknown partition", "first of its topic", "large", "too many bytes"],
)
def test_what_needs_more_than_sending_is_left(
    records: list[Record], goes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "records", built())
    counts: Counts = {"t": [4, 0]}
    assert sent(records, counts) == (goes, sum(len(record.value or b"") for record in records[:goes]))
    assert counts == {"t": [4 + goes, 0]}


def test_a_full_queue_is_left_to_whoever_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "records", built())
    producer = nobody()
    sender, counts = ManySender(producer, 1_000, 100_000, 40), {"t": [1]}
    assert sender.send([PLAIN] * 600, 0, counts, 0) == (600, 6_000)
    assert sender.send([PLAIN] * 600, 0, counts, 6_000) == (0, 6_000)
    producer.purge()


def test_what_librdkafka_refuses_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "records", built())
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.max.bytes": 1_000})
    counts: Counts = {"t": [1]}
    with pytest.raises(KafkaException) as raised:
        ManySender(producer, 100, 10_000, 10_000).send([PLAIN._replace(value=b"x" * 2_000)], 0, counts, 0)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert counts == {"t": [1]}


def test_the_version_in_the_lock_file_is_one_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "records", built())
    counts: Counts = {"t": [1]}
    assert sent([PLAIN], counts) == (1, 10)
