"""The progress topic while it is written to: its end may never come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from cdc.kafka_clients import producer
from cdc.names import progress_topic
from cdc.progress import Kind, Progress
from cdc.progress_log import ProgressLog
from cdc.settings import Kafka
from cdc.stack.server import Endpoint
from cdc.topics import Topics, pipeline_topics
from tests.support.wait import wait_until

EVERY_S = 0.002
"""Well below the time that a broker holds back an answer that has nothing in it."""


def progress(seq: int) -> Progress:
    return Progress(seq, Kind.STREAM, 8 * seq, 8 * seq + 8, 0, 1, 0, {}, "1", None)


def write_one(writer: Producer, topic: str, seq: int) -> None:
    refused: list[object] = []
    writer.produce(topic, progress(seq).to_bytes(), b"progress", 0, on_delivery=lambda error, _: refused.append(error))
    writer.flush(30)
    assert refused == [None]


@pytest.fixture
def settings(kafka: Endpoint, pipeline_name: str) -> Kafka:
    settings = Kafka(bootstrap=kafka.address)
    Topics(settings).ensure(pipeline_topics(pipeline_name))
    return settings


@contextmanager
def followed(settings: Kafka, pipeline: str) -> Iterator[ProgressLog]:
    log = ProgressLog(settings, pipeline)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def kept_writing(writer: Producer, topic: str, seq: int) -> Iterator[None]:
    """One record after the other, as capture writes them where many small transactions come in."""
    over = threading.Event()

    def write() -> None:
        now = seq
        while not over.wait(EVERY_S):
            write_one(writer, topic, now)
            now += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_log_that_is_being_written_is_read_at_once(settings: Kafka, pipeline_name: str) -> None:
    topic = progress_topic(pipeline_name)
    writer = producer(settings, "test")
    for seq in range(100):
        write_one(writer, topic, seq)
    with kept_writing(writer, topic, 100), followed(settings, pipeline_name) as log:
        began = time.monotonic()
        # For a moment, Kafka may not know a topic that was just made.
        newest = wait_until(log.newest, timeout_s=10)
        assert time.monotonic() - began < 10
        assert newest is not None
        assert newest.seq >= 99
        later = log.newest(10)
        assert later is not None
        assert later.seq > newest.seq


def test_a_log_without_a_record_ends_at_once(settings: Kafka, pipeline_name: str) -> None:
    with followed(settings, pipeline_name) as log:
        assert log.newest() is None
    with followed(settings, pipeline_name) as log:
        began = time.monotonic()
        assert log.boundary() is None
        assert time.monotonic() - began < 10
