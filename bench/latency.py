"""From commit to broker: a thousand single-row transactions a second, and when a `read_committed` consumer has each.

In: a running side and its topic. Out: percentiles in milliseconds. Writers say when each commit had returned; all
clocks are the machine's monotonic one.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicPartition

from bench.servers import Bench
from cdc.kafka_clients import consumer
from cdc.settings import Kafka

WRITERS = 4
PER_SECOND = 1_000
WARM_UP_S = 5.0
_LATE_S = 20.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from the return of COMMIT."""

    p50_ms: float
    p99_ms: float


def measure(bench: Bench, database: str, table: str, topic: str, seconds: float) -> Latency:
    """Write for `seconds` after a warm-up, and wait for the last change to arrive."""
    reader = consumer(Kafka(bootstrap=bench.kafka.address), "bench-latency", **{"fetch.wait.max.ms": 100})
    partitions = Kafka().partitions
    reader.assign([TopicPartition(topic, number, _end(reader, topic, number)) for number in range(partitions)])
    committed: list[dict[int, float]] = [{} for _ in range(WRITERS)]
    began = time.monotonic()
    until = began + WARM_UP_S + seconds
    threads = [
        threading.Thread(target=_write, args=(bench, database, table, number, until, committed[number]))
        for number in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    arrived = _arrivals(reader, until, threads, committed)
    reader.close()
    sent = {mark: at for written in committed for mark, at in written.items() if at > began + WARM_UP_S}
    assert sent.keys() <= arrived.keys(), f"{len(sent.keys() - arrived.keys())} changes did not arrive"
    waits = sorted(1000 * max(0.0, arrived[mark] - at) for mark, at in sent.items())
    return Latency(round(waits[len(waits) // 2], 1), round(waits[len(waits) * 99 // 100], 1))


def _arrivals(
    reader: Any, until: float, threads: list[threading.Thread], committed: list[dict[int, float]]
) -> dict[int, float]:
    """When each change was there: its number is in the row."""
    arrived: dict[int, float] = {}
    while time.monotonic() < until + _LATE_S:
        for message in reader.consume(200, 0.002):
            if message.error() is None and message.value() is not None:
                arrived[json.loads(message.value())["after"]["abalance"]] = time.monotonic()
        if any(thread.is_alive() for thread in threads):
            continue
        if all(written.keys() <= arrived.keys() for written in committed):
            break
    return arrived


def _write(bench: Bench, database: str, table: str, number: int, until: float, committed: dict[int, float]) -> None:
    """Updates at a steady rate; each carries a number of its own."""
    with bench.connect(database) as connection:
        every, due, mark = WRITERS / PER_SECOND, time.monotonic(), number
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            statement = f"UPDATE {table} SET abalance = {mark} WHERE aid = {1 + mark % 10_000}"  # noqa: S608  numbers
            connection.execute(statement.encode())
            committed[mark] = time.monotonic()
            mark += WRITERS
            due += every


def _end(reader: Any, topic: str, partition: int) -> int:
    end: int = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
    return end
