"""Whether the topics, folded to state, are the tables; and whether the progress records form one chain.

In: a pipeline's settings. Out: differences, as sentences. Reads on from where it was, so that it can be asked often.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from cdc.catalog import load_relations
from cdc.changes import Origin, Relation
from cdc.kafka_clients import END_OF_PARTITION, consumer
from cdc.names import progress_topic, quote_ident, topic_name
from cdc.postgres import connect
from cdc.progress import Progress
from cdc.settings import Settings
from cdc.tables import Tables
from snapshot.copy_text import parse_line
from tests.support.capturing import told_ends

State = dict[bytes, tuple[int, bytes]]
POLL_MESSAGES = 10_000


class Reader:
    """Every committed message of some topics, from the beginning, a piece at a time."""

    def __init__(self, settings: Settings, partitions: list[tuple[str, int]]) -> None:
        self._consumer: Consumer = consumer(settings.kafka, "soak", **{"fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
        self._read_to = dict.fromkeys(partitions, 0)

    def to_end(self, told: Mapping[str, tuple[int, ...]]) -> Iterator[Any]:
        """What has been committed since the last call; at least up to the ends that were told."""
        ends = {at: max(self._end(at), _told(told, at)) for at in self._read_to}
        while any(self._read_to[at] < end for at, end in ends.items()):
            for message in self._consumer.consume(POLL_MESSAGES, 0.2):
                error = message.error()
                if error is None:
                    yield message
                else:
                    # Said when a partition's end is reached, markers of transactions included.
                    assert error.code() == END_OF_PARTITION, error
                    self._read_to[message.topic(), message.partition()] = message.offset()

    def _end(self, at: tuple[str, int]) -> int:
        return self._consumer.get_watermark_offsets(TopicPartition(*at), timeout=30)[1]


class Copies:
    """The tables' topics of one pipeline, folded."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        with connect(settings.source, settings.source.read) as connection:
            relations = load_relations(connection, settings.source.tables, settings.source.exclude)
        self._relations = {topic_name(settings.pipeline, r.schema, r.name): r for r in relations}
        count = settings.kafka.partitions
        self._rows = Reader(settings, [(topic, part) for topic in self._relations for part in range(count)])
        self._progress = Reader(settings, [(progress_topic(settings.pipeline), 0)])
        self._state: dict[str, State] = {topic: {} for topic in self._relations}
        self._last: Progress | None = None
        self.records = 0

    def differences(self) -> list[str]:
        """Where topics and tables differ now; nothing may be writing."""
        for message in self._rows.to_end(told_ends(self._settings)):
            self._take(message)
        found = list(self._breaks())
        for topic, relation in self._relations.items():
            captured = {key: _after(value) for key, (_, value) in self._state[topic].items()}
            stored = self._stored(relation)
            if captured != stored:
                keys = [key for key in captured.keys() | stored.keys() if captured.get(key) != stored.get(key)]
                found.append(f"{relation.qualified}: {len(keys)} of {len(stored)} keys differ")
        return found

    def _take(self, message: Any) -> None:
        self.records += 1
        state, key, value = self._state[message.topic()], message.key(), message.value()
        if key == b"{}":
            for other in [each for each, (partition, _) in state.items() if partition == message.partition()]:
                del state[other]
        elif value is None:
            state.pop(key, None)
        else:
            state[key] = (message.partition(), value)

    def _breaks(self) -> Iterator[str]:
        for message in self._progress.to_end({}):
            progress = Progress.from_bytes(message.value())
            if self._last is not None and not progress.follows(self._last):
                yield f"the progress record {progress.seq} does not follow {self._last.seq}"
            self._last = progress

    def _stored(self, relation: Relation) -> dict[bytes, Any]:
        settings = self._settings
        encoder = Tables(settings.pipeline, settings.source.database, settings.kafka.partitions, {}).encoder(relation)
        columns = ", ".join(quote_ident(column.name) for column in relation.columns)
        query = f"COPY (SELECT {columns} FROM {quote_ident(relation.schema)}.{quote_ident(relation.name)}) TO STDOUT"
        rows: dict[bytes, Any] = {}
        with (
            connect(settings.source, settings.source.read) as connection,
            connection.cursor() as cursor,
            cursor.copy(query.encode()) as copy,
        ):
            for line in copy:
                record = encoder.read_record(parse_line(bytes(line)), Origin(0, None, 0), 0)
                assert record.value is not None
                rows[record.key] = _after(record.value)
        return rows


def _told(ends: Mapping[str, tuple[int, ...]], at: tuple[str, int]) -> int:
    topic, partition = at
    return dict(enumerate(ends.get(topic, ()))).get(partition, 0)


def _after(value: bytes) -> Any:
    return json.loads(value)["after"]
