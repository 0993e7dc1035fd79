"""Writes a table's topic as capture would (docs/FORMATS.md), with positions that the test chooses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.names import topic_name
from cdc.partition import partition_of
from jobs.tables import ColumnInfo, TableInfo

Row = Mapping[str, Any]
Event = tuple[str, Row | None]
"""Operation (c, r, u, d, t) and the row's JSON values; a delete needs only the key, a truncate nothing."""


def table(pipeline: str, columns: Iterable[ColumnInfo], name: str = "orders", partitions: int = 2) -> TableInfo:
    """A table of the schema `public`."""
    listed = tuple(columns)
    key = tuple(column.name for column in listed if column.key)
    return TableInfo(1, "public", name, 1, "d", key, listed, topic_name(pipeline, "public", name), partitions)


class EventLog:
    """The producer's side of one table's topic; `ends` are the offsets after the last records."""

    def __init__(self, bootstrap: str, info: TableInfo) -> None:
        self._table = info
        topic = NewTopic(info.topic, info.partitions, 1, config={"cleanup.policy": "compact"})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([topic]).values():
            made.result(30)
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"test-{info.topic}", "log_level": 0}
        self._producer = Producer(settings)
        self._producer.init_transactions(30)
        self._ends = [0] * info.partitions

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(self._ends)

    @property
    def start(self) -> tuple[int, ...]:
        return (0,) * self._table.partitions

    def transaction(self, commit_lsn: int, *events: Event, ordinal: int = 1) -> None:
        """One Postgres transaction in one Kafka transaction; reads (`r`) get the ordinal 0."""
        self._producer.begin_transaction()
        for number, (op, row) in enumerate(events, ordinal):
            self._event(op, row or {}, commit_lsn, 0 if op == "r" else number)
        self._producer.commit_transaction(30)

    def aborted(self, commit_lsn: int, *events: Event) -> None:
        """The same, aborted at the end."""
        self._producer.begin_transaction()
        ends = self.ends
        for number, (op, row) in enumerate(events, 1):
            self._event(op, row or {}, commit_lsn, number)
        self._producer.flush(30)
        self._producer.abort_transaction(30)
        self._ends = list(ends)

    def raw(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Any record at all."""
        self._producer.begin_transaction()
        self._send(partition, key, value)
        self._producer.commit_transaction(30)

    def _event(self, op: str, row: Row, commit_lsn: int, ordinal: int) -> None:
        key = dumps({name: row[name] for name in self._table.key}) if op != "t" else b"{}"
        source = {"commit_lsn": commit_lsn, "lsn": commit_lsn, "ordinal": ordinal, "ts_ms": commit_lsn}
        after = row if op in "cru" else None
        value = dumps({"before": None, "after": after, "source": source, "op": op, "ts_ms": 1})
        count = self._table.partitions
        for partition in range(count) if op == "t" else [partition_of(key, count)]:
            self._send(partition, key, value)
            if op == "d":
                self._send(partition, key, None, [("position", f"{commit_lsn}:{ordinal}")])

    def _send(self, partition: int, key: bytes, value: bytes | None, headers: Any = None) -> None:
        def landed(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self._ends[partition] = max(self._ends[partition], message.offset() + 1)

        while True:
            try:
                self._producer.produce(self._table.topic, value, key, partition, headers=headers, on_delivery=landed)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


def dumps(value: Any) -> bytes:
    """JSON as capture writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
