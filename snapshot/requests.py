"""Wishes for a table to be read again while the stream goes on, and what became of them: the topic `_snapshots`.

In: requests of `afterimage snapshot`, capture's answers. Out: records, the newest of each id counts. Keeps true: an
answer is in the Kafka transaction of the last rows, so a request is carried out once, however often capture dies.
"""

from __future__ import annotations

import enum
import json
import time
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message

from cdc.changes import Record
from cdc.errors import ProtocolError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, assign_whole, consumer, producer, translate, translated
from cdc.names import snapshots_topic
from cdc.settings import Settings
from cdc.topics import Topics, pipeline_topics

_VERSION: Final = 1
_TIMEOUT_S: Final = 10.0


class State(enum.Enum):
    """How a request stands."""

    REQUESTED = "requested"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """One table, or those of its rows for which `where` holds."""

    id: str
    schema: str
    table: str
    where: str | None
    estimated_rows: int
    sent_ts_ms: int
    state: State = State.REQUESTED
    rows: int = 0
    message: str | None = None

    def answered(self, rows: int, failure: str | None) -> SnapshotRequest:
        """Done, or failed for a reason."""
        return replace(self, state=State.FAILED if failure else State.DONE, rows=rows, message=failure)

    def record(self, pipeline: str) -> Record:
        """As it stands on the topic."""
        body = {
            "v": _VERSION,
            "state": self.state.value,
            "schema": self.schema,
            "table": self.table,
            "where": self.where,
            "estimated_rows": self.estimated_rows,
            "sent_ts_ms": self.sent_ts_ms,
            "rows": self.rows,
            "message": self.message,
        }
        value = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        return Record(snapshots_topic(pipeline), 0, self.id.encode(), value)

    @staticmethod
    def from_record(key: bytes, value: bytes) -> SnapshotRequest:
        """The inverse of record()."""
        try:
            body = json.loads(value)
            if body["v"] != _VERSION:
                raise ValueError(body["v"])
            return _from_body(key.decode(), body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProtocolError("malformed request for a snapshot", "who writes to the topic _snapshots?") from error


def _from_body(name: str, body: dict[str, Any]) -> SnapshotRequest:
    where, message = body["where"], body["message"]
    return SnapshotRequest(
        id=name,
        schema=str(body["schema"]),
        table=str(body["table"]),
        where=None if where is None else str(where),
        estimated_rows=int(body["estimated_rows"]),
        sent_ts_ms=int(body["sent_ts_ms"]),
        state=State(body["state"]),
        rows=int(body["rows"]),
        message=None if message is None else str(message),
    )


class RequestLog:
    """Follows the topic from its beginning; what is malformed is passed over."""

    def __init__(self, settings: Settings) -> None:
        self._topic = ensure_topic(settings)
        self._consumer: Consumer = consumer(settings.kafka, "snapshots")
        self._unread: dict[str, SnapshotRequest] = {}
        self._has_seen_end = False
        assign_whole(self._consumer, self._topic, "reading requests for snapshots", _TIMEOUT_S)

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def newest(self, wait_s: float = 0.0) -> list[SnapshotRequest]:
        """The newest record of each id that has one since the last call; none before the end was seen once."""
        deadline = time.monotonic() + wait_s
        while (message := self._consumer.poll(max(0.0, deadline - time.monotonic()))) is not None:
            self._take(message)
        if not self._has_seen_end:
            return []
        found, self._unread = list(self._unread.values()), {}
        return found

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() != END_OF_PARTITION:
                raise translate(error, "reading requests for snapshots")
            self._has_seen_end = True
            return
        key, value = message.key(), message.value()
        name = key if isinstance(key, bytes) else (key or "").encode()
        if value is None:
            self._unread.pop(name.decode("utf-8", "replace"), None)
            return
        try:
            request = SnapshotRequest.from_record(name, value)
        except ProtocolError:
            return
        self._unread[request.id] = request


def ensure_topic(settings: Settings) -> str:
    """Make the topic unless it is there; its name."""
    topic = snapshots_topic(settings.pipeline)
    Topics(settings.kafka).ensure(plan for plan in pipeline_topics(settings.pipeline) if plan.name == topic)
    return topic


def publish(settings: Settings, request: SnapshotRequest) -> None:
    """Return once the broker has it."""
    record = request.record(settings.pipeline)
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    limits = {"acks": "all", "linger.ms": 0, "delivery.timeout.ms": int(_TIMEOUT_S * 1000)}
    client = producer(settings.kafka, "snapshots", **limits)
    with translated("asking for a snapshot"):
        client.produce(record.topic, key=record.key, value=record.value, partition=0, on_delivery=delivered)
        left = client.flush(_TIMEOUT_S + 1)
    if failures:
        raise translate(failures[0], "asking for a snapshot")
    if left:
        raise TransientError("the topic of requests does not take records in time", "is Kafka up?")
