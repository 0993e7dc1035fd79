"""What writes a view's topic: records in one Kafka transaction, with the record that says where the view stands then.

In: changes, then a standing. Out: all of it committed, or nothing of it. Keeps true: whoever starts has fenced every
older writer of the view, so what it looks at after that is changed by nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException, Message, Producer

from cdc.errors import CdcError, TransientError
from cdc.kafka_clients import producer, translate
from cdc.settings import Kafka
from sinks.kafka.records import POSITION_HEADER, POSITION_KEY, Change, Envelope, operation
from sinks.standing import overtaken

TRANSACTION_S: Final = 600.0
"""Kafka aborts a transaction that is open for longer; a broker allows 900 s unless told otherwise."""
ANSWER_S: Final = 60.0
Headers = list[tuple[str, str | bytes | None]] | None

_FULL_WAIT_S: Final = 0.05
_FENCED: Final = "FENCED"


class Writer:
    """The transactional producer of one view's topic."""

    def __init__(self, kafka: Kafka, pipeline: str, view: str, topic: str) -> None:
        self._view, self._topic = view, topic
        with self._translated("starting"):
            self._producer: Producer = producer(
                kafka,
                f"view-{pipeline}-{view}",
                **{
                    # No pipeline's name has a hyphen, so no other one has this.
                    "transactional.id": f"afterimage-{pipeline}-view-{view}",
                    "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                    "linger.ms": 5,
                    "compression.type": "lz4",
                    "batch.size": 1 << 20,
                    "message.max.bytes": 1_000_000_000,
                    "queue.buffering.max.kbytes": 64 << 10,
                },
            )
            self._producer.init_transactions(ANSWER_S)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All or nothing; after an error this writer is of no more use."""
        with self._translated("beginning"):
            self._producer.begin_transaction()
        opened = Transaction(self._producer, self._topic)
        try:
            with self._translated("writing"):
                yield opened
                self._producer.commit_transaction(ANSWER_S)
        except BaseException:
            self._abort()
            raise

    def _abort(self) -> None:
        try:
            self._producer.purge()
            self._producer.abort_transaction(ANSWER_S)
        except (
            KafkaException
        ):  # what was the matter is being raised; Kafka aborts it, at the latest for the next writer
            pass

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._meaning(error, doing) from error

    def _meaning(self, error: KafkaException, doing: str) -> CdcError:
        found = translate(error.args[0], f"{doing} {self._topic}")
        return overtaken("Kafka", self._view) if found.code == _FENCED else found


class Transaction:
    """An open one."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._opened = time.monotonic()
        self._offset: int | None = None

    @property
    def open_s(self) -> float:
        """For how long it has been open."""
        return time.monotonic() - self._opened

    def change(self, change: Change, envelope: Envelope, name: str | None = None) -> None:
        """One change; a delete is followed by a tombstone, which compaction keeps for a while."""
        key = change.key.encode()
        self._produce(key, envelope.value(change, name or operation(change)))
        if change.after is None:
            header = f"{change.lsn}:0".encode()
            self._produce(key, None, [(POSITION_HEADER, header)])

    def position(self, value: bytes | None) -> None:
        """Where the view stands with what was written; None: nowhere, until another transaction says so."""
        self._produce(POSITION_KEY, value)

    def offset(self) -> int:
        """Where the position's record is, after the commit."""
        if self._offset is None:
            message = f"Kafka does not say where a record of {self._topic} is"
            raise TransientError(message, "it is tried again", code="KAFKA_UNAVAILABLE")
        return self._offset

    def _produce(self, key: bytes, value: bytes | None, headers: Headers = None) -> None:
        heard = self._heard if key == POSITION_KEY else None
        while True:
            try:
                self._producer.produce(self._topic, value, key, 0, heard, headers=headers)
            except BufferError:
                self._producer.poll(_FULL_WAIT_S)
            else:
                return

    def _heard(self, error: object, message: Message) -> None:
        if error is None:
            self._offset = message.offset()
