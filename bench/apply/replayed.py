"""A source that costs the machine little: updates of rows as capture writes them, made of the records it has written.

In: a Field, whose capture ends here. Out: transactions of 100 scattered updates in the table's topic, with progress
records, at a steady rate. Keeps true: nothing but their number tells them from capture's own; when it closes, Postgres
holds the same rows, so that both sides can be compared with it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from confluent_kafka import TopicPartition

from bench.afterimage import stop
from bench.apply.field import Field
from cdc.changes import Record
from cdc.kafka_clients import consumer
from cdc.progress import Kind, Progress, checksum
from cdc.publisher import Publisher

ROWS = 100
"""Of a transaction."""
COMMITTED_TOGETHER = 300
"""Transactions, if more are due at once."""
_PRIME, _START = 7_919, 6_151
_LSN_STEP = 4_096
_TIMEOUT_S = 60.0
_MARK = b'"mark":'
_SOURCE = b',"source":'
_TAIL = re.compile(
    rb'(.*"snapshot":")true(".*,"lsn":)\d+(,"commit_lsn":)\d+(,"ordinal":)\d+(\},"op":")r(","ts_ms":)\d+\}', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row's record around its mark."""

    key: bytes
    partition: int
    before_mark: bytes
    after_mark: bytes


@dataclass(slots=True)
class Replayed:
    """Writes at the rate of the newest `flowing`; one thread at a time."""

    at: Field
    rows: Sequence[Row]
    publisher: Publisher
    progress: Progress
    tail: tuple[bytes, ...]
    base: int
    """A position before all of these."""
    marks: dict[int, int] = field(default_factory=dict)
    written: int = 0

    @contextmanager
    def flowing(self, per_second: int) -> Iterator[Replayed]:
        """Write beside the block; `written` counts the rows."""
        ended = threading.Event()
        thread = threading.Thread(target=self._flow, args=(per_second, ended))
        self.written = 0
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _flow(self, per_second: int, ended: threading.Event) -> None:
        every, due = ROWS / per_second, time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            count = min(COMMITTED_TOGETHER, 1 + int((time.monotonic() - due) / every))
            self._commit([record for _ in range(count) for record in self._transaction()])
            self.written += count * ROWS
            due += count * every

    def _transaction(self) -> Iterator[Record]:
        """Each has a position of its own."""
        self.at.marks += 1
        mark, size, topic = self.at.marks, len(self.rows), self.at.pipeline.topic(self.at.tables[0])
        lsn = self.base + mark * _LSN_STEP
        head, lsn_1, lsn_2, ordinal, operation, moment = self.tail
        shared = b"%bfalse%b%d%b%d%b" % (head, lsn_1, lsn, lsn_2, lsn, ordinal)
        end = b"%bu%b%d}" % (operation, moment, time.time_ns() // 1_000_000)
        first = mark * _START % size
        for ordinal_of in range(1, ROWS + 1):
            number = (first + ordinal_of * _PRIME) % size
            row = self.rows[number]
            self.marks[number] = mark
            value = b"%b%d%b%b%d%b" % (row.before_mark, mark, row.after_mark, shared, ordinal_of, end)
            yield Record(topic, row.partition, row.key, value)

    def _commit(self, records: list[Record]) -> None:
        self.publisher.produce(records)
        sealed = self.publisher.seal()
        following = self.progress.successor(Kind.STREAM, len(records), checksum(records), sealed)
        self.progress = replace(
            following, lsn=self.base + self.at.marks * _LSN_STEP + 1, source_ts_us=time.time_ns() // 1_000
        )
        self.publisher.commit(self.progress)

    def into_postgres(self) -> None:
        """What was written to the topic alone."""
        columns = [[number + 1 for number in self.marks], [*self.marks.values()]]
        with self.at.bench.connect(self.at.database) as connection:
            connection.execute(
                f"UPDATE {self.at.tables[0]} AS t SET mark = v.mark "  # noqa: S608 - our own names
                "FROM unnest(%s::bigint[], %s::bigint[]) AS v(id, mark) WHERE t.id = v.id".encode(),
                columns,
            )


@contextmanager
def replayed(at: Field) -> Iterator[Replayed]:
    """From here on nothing else writes to the topics."""
    stop(at.capture)
    at.progress()
    progress = at.progress.newest
    assert progress is not None
    kafka = at.pipeline.settings.kafka
    publisher = Publisher(kafka, at.pipeline.settings.pipeline, _TIMEOUT_S)
    publisher.start()
    rows, tail = _recorded(at)
    made = Replayed(at, rows, publisher, progress, tail, progress.lsn)
    try:
        yield made
    finally:
        publisher.close()


def _recorded(at: Field) -> tuple[list[Row], tuple[bytes, ...]]:
    """The snapshot's records, by the rows' numbers, and what their envelope ends with."""
    table = at.tables[0]
    topic, ends = at.pipeline.topic(table), at.ends(table)[table]
    found: dict[int, Row] = {}
    tail: tuple[bytes, ...] | None = None
    reader = consumer(at.pipeline.settings.kafka, "bench")
    reader.assign([TopicPartition(topic, partition, 0) for partition, end in enumerate(ends) if end])
    deadline = time.monotonic() + _TIMEOUT_S * 5
    while len(found) < at.rows:
        assert time.monotonic() < deadline, f"{len(found)} of {at.rows} records are there"
        for message in reader.consume(10_000, 1.0):
            key, value, partition = message.key(), message.value(), message.partition()
            if message.error() is not None or key is None or value is None:
                continue
            assert partition is not None
            mark, source = value.index(_MARK) + len(_MARK), value.index(_SOURCE)
            found[int(key[len(b'{"id":') : -1])] = Row(
                key, partition, value[:mark], value[value.index(b",", mark) : source]
            )
            tail = tail or _tail(value[source:])
    reader.close()
    assert tail is not None
    return [found[number + 1] for number in range(at.rows)], tail


def _tail(text: bytes) -> tuple[bytes, ...]:
    match = _TAIL.fullmatch(text)
    assert match is not None, text
    return match.groups()
