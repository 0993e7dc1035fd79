"""From commit to visible: a thousand single-row transactions a second, and when each can be read from a Delta mirror.

In: a Field, one side at work. Out: percentiles in seconds. While it runs, only the writers' clocks and the versions of
the Delta table are noted; which version was the first to hold a change is worked out afterwards, from the topic.
"""

from __future__ import annotations

import bisect
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition

from bench.apply.field import Field
from bench.apply.result import Figures, rounded
from bench.apply.sides import Side
from bench.apply.versions import Ends
from bench.apply.works import memory, require_equal
from cdc.kafka_clients import END_OF_PARTITION, consumer

WRITERS = 4
PER_SECOND = 1_000
WARM_UP_S = 10.0
_LOOK_S = 0.005


@dataclass(slots=True)
class Load:
    """Updates at a steady rate from several connections, each with a mark of its own; use as a context manager."""

    at: Field
    per_second: int
    first_mark: int
    tables: Sequence[str]
    committed: dict[int, float] = field(default_factory=dict)
    """When the COMMIT of each mark had returned."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def table_of(self, mark: int) -> str:
        """Each writer goes from table to table."""
        return self.tables[mark // WRITERS % len(self.tables)]

    def _write(self, number: int) -> None:
        rows = self.at.rows
        with self.at.bench.connect(self.at.database) as connection:
            every, due, mark = WRITERS / self.per_second, time.monotonic(), self.first_mark + number
            while not self._stop.is_set():
                time.sleep(max(0.0, due - time.monotonic()))
                key = 1 + mark * 7919 % rows
                statement = f"UPDATE {self.table_of(mark)} SET mark = {mark} WHERE id = {key}"  # noqa: S608  numbers
                # A key that an earlier work deleted gives no record.
                if connection.execute(statement.encode()).rowcount:
                    self.committed[mark] = time.monotonic()
                mark += WRITERS
                due += every


def freshness(at: Field, seconds: float, repeats: int, *, target: str) -> Figures:
    """One table's."""
    return in_turns(at, lambda side: _waits_of(at, side, seconds), repeats, target=target)


def in_turns(at: Field, waits_of: Callable[[Side], list[float]], repeats: int, *, target: str) -> Figures:
    """Both sides in turns, each under its own load; p50 stands for the work, p99 beside it."""
    figures = Figures("s", target)
    p99: dict[str, list[float]] = {side.name: [] for side in at.sides}
    with memory(at, figures):
        for _ in range(repeats):
            for side in at.sides:
                found = waits_of(side)
                figures.of(side.name).append(percentile(found, 50))
                p99[side.name].append(percentile(found, 99))
    at.publish("SELECT 1")
    for side in at.sides:
        side.turn(at.ends())
    require_equal(at)
    figures.more = {f"p99_{name}": [rounded(each) for each in turns] for name, turns in p99.items()}
    return figures


def _waits_of(at: Field, side: Side, seconds: float) -> list[float]:
    table = at.tables[0]
    at.publish("SELECT 1")
    start = at.ends(table)[table]
    at.marks += 10_000_000
    side.turn({table: start})
    side.go()
    with Load(at, PER_SECOND, at.marks, [table]) as load:
        began = time.monotonic()
        _watch(side, table, began + WARM_UP_S + seconds)
    at.publish("SELECT 1")
    side.wait_for(at.ends(table))
    time.sleep(1)
    side.hold()
    seen = side.versions[table].seen
    found = places(at, table, start, at.ends(table)[table])
    until = began + WARM_UP_S + seconds
    marks = {mark: when for mark, when in load.committed.items() if began + WARM_UP_S < when < until}
    return [*waits(marks, found, [(each.at_s, each.ends) for each in seen])]


def _watch(side: Side, table: str, until: float) -> None:
    while time.monotonic() < until:
        side.look(table)
        time.sleep(_LOOK_S)


def waits(
    committed: Mapping[int, float], found: Mapping[int, tuple[int, int]], seen: Sequence[tuple[float, Ends]]
) -> Iterator[float]:
    """For each mark: from its commit to the first version that goes past its record."""
    for mark, when in committed.items():
        partition, offset = found[mark]
        first = bisect.bisect_right(seen, offset, key=_end_of(partition))
        yield max(0.0, seen[first][0] - when)


def _end_of(partition: int) -> Callable[[tuple[float, Ends]], int]:
    return lambda version: version[1][partition]


def commits(at: Field, table: str, start: Ends, end: Ends) -> dict[int, int]:
    """The commit LSN of each mark."""
    records = _records(at, table, start, end)
    return {event["after"]["mark"]: event["source"]["commit_lsn"] for event, _ in records if event["after"]}


def places(at: Field, table: str, start: Ends, end: Ends) -> dict[int, tuple[int, int]]:
    """Where the record of each mark is: partition and offset."""
    records = _records(at, table, start, end)
    return {event["after"]["mark"]: place for event, place in records if event["after"]}


def _records(at: Field, table: str, start: Ends, end: Ends) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The events of a range, each with its partition and offset."""
    reader = consumer(at.pipeline.settings.kafka, "bench-places")
    topic = at.pipeline.topic(table)
    reader.assign([TopicPartition(topic, number, first) for number, first in enumerate(start)])
    open_partitions = {number for number in range(len(start)) if start[number] < end[number]}
    while open_partitions:
        for message in reader.consume(5_000, 0.2):
            error, value, partition, offset = message.error(), message.value(), message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            assert error is None or error.code() == END_OF_PARTITION, error
            if error is not None:
                open_partitions.discard(partition)
            elif value is not None:
                yield json.loads(value), (partition, offset)
    reader.close()


def percentile(values: Sequence[float], part: int) -> float:
    """Of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * part // 100)]
