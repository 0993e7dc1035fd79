"""Both sides over the same changes: their topics, read back as they are.

In: a folder to run servers in. Out: Both, the messages of each side's topics in the order of their partitions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from bench import debezium
from bench.afterimage import Pipeline
from bench.compare import workload
from bench.debezium import Connector
from bench.servers import Bench, running
from cdc.kafka_clients import END_OF_PARTITION, consumer
from cdc.names import topic_name
from cdc.settings import Kafka
from tests.support.wait import wait_until

_WAIT_S = 180.0
_FAILED = "Task threw an uncaught and unrecoverable exception"
DATABASE = "compared"
OURS, THEIRS = "ours", "theirs"
SETTINGS = {
    "table.include.list": r"(public|Odd Schema)\\.(?!parts_).*",
    "snapshot.mode": "initial",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    "binary.handling.mode": "bytes",
    "include.unknown.datatypes": "true",
    "provide.transaction.metadata": "true",
    "skipped.operations": "none",
    "event.processing.failure.handling.mode": "warn",
    "topic.creation.default.partitions": "2",
    "topic.creation.default.replication.factor": "1",
}
"""Debezium's settings that bring it nearest to what Afterimage writes; docs/DEBEZIUM.md says so too."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record as the broker has it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Both:
    """The messages of each side, its prefix cut off the topics' names."""

    ours: list[Message]
    theirs: list[Message]
    types: dict[tuple[str, str, str], str]
    """The type of each column, by schema, table and name, as it was declared."""


def capture_both(folder: Path) -> Both:
    """Run the workload once with both capturing."""
    with running(folder) as bench:
        bench.create_database(DATABASE)
        with bench.connect(DATABASE) as connection:
            workload.prepare(connection)
            rows = workload.snapshot_rows(connection)
            pipeline = Pipeline.prepared(bench, OURS, DATABASE, "public.*", '"Odd Schema".*')
            options = {**SETTINGS, "publication.name": pipeline.settings.publication}
            connector = Connector(bench, THEIRS, DATABASE, "", options)
            with pipeline.running(), _connected(connector):
                pipeline.wait_for_boundary()
                _await_records(bench, THEIRS, rows)
                workload.change(connection)
                _await_records(bench, topic_name(OURS, "public", workload.FENCE), 1)
                _await_records(bench, f"{THEIRS}.public.{workload.FENCE}", 1)
            types = workload.column_types(connection)
        return Both(_read(bench, OURS), _read(bench, THEIRS), types)


@contextmanager
def _connected(connector: Connector) -> Iterator[None]:
    process = connector.start()
    try:
        yield
    finally:
        debezium.stop(process)


def _await_records(bench: Bench, prefix: str, count: int) -> None:
    log = bench.folder / THEIRS / "connect.log"

    def have_come() -> bool:
        assert _FAILED not in log.read_text(), f"Debezium stopped; see {log}"
        with _reader(bench, prefix) as (client, partitions):
            try:
                ends = [client.get_watermark_offsets(each, timeout=30)[1] for each in partitions]
            except KafkaException:  # a topic that is just being made
                return False
        return sum(ends) >= count

    wait_until(have_come, timeout_s=_WAIT_S, what=f"{count} records in {prefix}")


@contextmanager
def _reader(bench: Bench, prefix: str) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
    """A consumer, and every partition of the topics under a prefix."""
    kafka = Kafka(bootstrap=bench.kafka.address)
    client: Consumer = consumer(kafka, f"compare-{secrets.token_hex(3)}")
    try:
        listed = client.list_topics(timeout=30).topics
        names = sorted(name for name in listed if f"{name}.".startswith(f"{prefix}."))
        yield client, [TopicPartition(name, number, 0) for name in names for number in listed[name].partitions]
    finally:
        client.close()


def _read(bench: Bench, prefix: str) -> list[Message]:
    found = []
    with _reader(bench, prefix) as (client, wanted):
        open_ends = len(wanted)
        client.assign(wanted)
        while open_ends:
            message = client.poll(10.0)
            assert message is not None, "the broker went silent"
            error = message.error()
            if error is None:
                found.append(_plain(message))
            else:
                assert error.code() == END_OF_PARTITION, error
                open_ends -= 1
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


def _plain(message: KafkaMessage) -> Message:
    """Without its side's prefix."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    pairs = cast("list[tuple[str, bytes]]", message.headers() or [])  # they may also be a dictionary, when given
    headers = {name: value.decode() for name, value in pairs}
    return Message(topic.partition(".")[2], partition, offset, message.key(), message.value(), headers)
