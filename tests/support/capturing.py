"""Capture running inside the test, and its topics read back as state.

`running_capture(settings)` runs the product's own loop in a thread; `Topic` readers fold what is committed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition

from cdc.cli.capturing import CaptureRun
from cdc.errors import TransientError
from cdc.kafka_clients import END_OF_PARTITION, consumer
from cdc.lsn import parse_lsn
from cdc.names import topic_name
from cdc.progress import Progress
from cdc.progress_log import ProgressLog
from cdc.settings import Settings
from tests.support.wait import wait_until

READ_S = 120.0


@dataclass
class RunningCapture:
    """A capture in a thread."""

    settings: Settings
    error: BaseException | None = None
    troubles: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> RunningCapture:
        run = CaptureRun(
            self.settings, self._stop.wait, lambda state: None, lambda error, _: self.troubles.append(error)
        )

        def body() -> None:
            try:
                run.run()
            except BaseException as error:  # noqa: BLE001
                self.error = error

        self._thread = threading.Thread(target=body, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(120)
        assert not self._thread.is_alive()

    def ended(self) -> BaseException:
        """The error that ended it."""
        wait_until(lambda: self.error, what="capture to end with an error", timeout_s=180)
        assert self.error is not None
        return self.error

    def wait_for(self, lsn: int, timeout_s: float = 180.0) -> Progress:
        """The boundary that covers `lsn`."""
        log = ProgressLog(self.settings.kafka, self.settings.pipeline)
        try:

            def reached() -> Progress | None:
                if self.error is not None:
                    raise AssertionError("capture ended") from self.error
                try:
                    boundary = log.boundary(0.02)
                except TransientError:
                    return None
                return boundary if boundary is not None and boundary.lsn >= lsn else None

            return wait_until(reached, timeout_s=timeout_s, what="capture to reach the position")
        except AssertionError as late:
            raise AssertionError(f"{late}; its troubles: {self.troubles[-3:]!r}") from late
        finally:
            log.close()


@contextmanager
def running_capture(settings: Settings) -> Iterator[RunningCapture]:
    running = RunningCapture(settings).start()
    try:
        yield running
    finally:
        running.stop()
    if running.error is not None:
        raise running.error


def insert_lsn(connection: Any) -> int:
    """The end of the log: everything committed so far lies before it."""
    return parse_lsn(connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0])


def await_release(connection: Any, slot: str) -> None:
    """A walsender lingers a moment after its reader has gone."""
    active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
    wait_until(lambda: connection.execute(active, [slot]).fetchone() is None, what="the slot to be released")


def told_ends(settings: Settings) -> Mapping[str, tuple[int, ...]]:
    """Where the partitions of each topic end, by the newest progress record.

    Kafka writes the markers of a commit partition by partition: whoever has seen this record may find that a topic
    seems to end before what was committed with it, for a moment.
    """
    log = ProgressLog(settings.kafka, settings.pipeline)
    try:
        newest = log.newest()
    finally:
        log.close()
    return newest.ends if newest is not None else {}


def each_message(settings: Settings, topic: str, partitions: int, **options: Any) -> Iterator[Any]:
    """Every committed message of a topic, to where the progress record says that it ends, or further."""
    ends = dict(enumerate(told_ends(settings).get(topic, ())))
    client = consumer(settings.kafka, "test", **options)
    silent = time.monotonic() + READ_S
    try:
        client.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        read_to = dict.fromkeys(range(partitions), -1)
        while late := [each for each, at in read_to.items() if at < ends.get(each, 0)]:
            assert time.monotonic() < silent, f"{topic}: partitions {late} end at {read_to}, told were {ends}"
            message = client.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                silent = time.monotonic() + READ_S
                yield message
            else:
                assert error.code() == END_OF_PARTITION, error
                read_to[message.partition()] = message.offset()
    finally:
        client.close()


def read_topic(settings: Settings, topic: str, partitions: int) -> list[Any]:
    """The same at once."""
    return list(each_message(settings, topic, partitions))


def table_messages(settings: Settings, schema: str, table: str) -> list[Any]:
    return read_topic(settings, topic_name(settings.pipeline, schema, table), settings.kafka.partitions)


def folded(messages: list[Any], on_event: Callable[[dict[str, Any]], None] = lambda event: None) -> dict[str, Any]:
    """Key text -> after image, as a plain consumer of the topic would keep it."""
    state: dict[str, Any] = {}
    for message in messages:
        key = message.key().decode()
        if message.value() is None:
            state.pop(key, None)
            continue
        event = json.loads(message.value())
        on_event(event)
        if key == "{}":
            assert event["op"] == "t"
            mine = [other for other, (partition, _) in state.items() if partition == message.partition()]
            for other in mine:
                del state[other]
        elif event["op"] == "d":
            state.pop(key, None)
        else:
            state[key] = (message.partition(), event["after"])
    return {key: after for key, (_, after) in state.items()}
