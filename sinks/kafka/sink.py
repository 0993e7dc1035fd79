"""A view as a change feed: a compacted topic `<pipeline>.view.<name>` that is also a full copy of the view.

In: DataFrames of changes or of all rows. Out: records and the view's position, in one Kafka transaction. Keeps true:
readers of committed records see whole batches, in order; the newest position record says what stands before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from cdc import log
from cdc.errors import OperatorError
from cdc.names import view_topic
from cdc.settings import Kafka
from cdc.topics import Topics, table_topic
from sinks.kafka.frames import changes_of
from sinks.kafka.live import KeyDigests
from sinks.kafka.records import Change, Counts, Envelope, position_value
from sinks.kafka.topic import Stored, ViewTopic
from sinks.kafka.transaction import TRANSACTION_S, Transaction, Writer
from sinks.options import check_known, declaration
from sinks.protocol import DELETE, Position, Written
from sinks.spec import SinkOptions, ViewSpec
from sinks.standing import Located, Standing, column_types, lost, new_generation, overtaken
from sinks.values import json_texts, object_template

READ: Final = "r"

_log = log.get(__name__)


class KafkaSink:
    """See sinks.protocol.Sink."""

    name = "kafka"

    def __init__(
        self, kafka: Kafka, pipeline: str, spec: ViewSpec, option: SinkOptions, *, part_s: float = TRANSACTION_S / 2
    ) -> None:
        check_known(option, (), spec)
        self._kafka = kafka
        self._pipeline = pipeline
        self._spec = spec
        self._topic = ViewTopic(kafka, view_topic(pipeline, spec.name), spec.name, declaration(option, spec))
        self._located: Located[Stored] = Located("Kafka", spec.name)
        self._open: Writer | None = None
        self._part_s = part_s

    def position(self) -> Position | None:
        """From the topic alone: its newest position record."""
        stored = self._topic.look().stored
        self._located.take(stored)
        return stored.standing.position if stored else None

    def write(self, changes: Any, position: Position) -> Written:
        """All changes and the position in one transaction; a late batch was contained in a later one."""
        stored = self._required()
        types = column_types(changes, self._spec.columns)
        stored.standing.require_types(types)
        if position.lsn <= stored.standing.position.lsn:
            return Written()
        return self._commit(changes_of(changes, *self._shape), stored.standing.moved(position), stored)

    def advance(self, position: Position) -> None:
        """The position alone."""
        stored = self._required()
        if position.lsn > stored.standing.position.lsn:
            self._commit(iter(()), stored.standing.moved(position), stored)

    def mend(self, changes: Any, position: Position) -> Written:
        """The keys' records again, and the position that stands."""
        stored = self._required()
        stored.standing.require_types(column_types(changes, self._spec.columns))
        return self._commit(changes_of(changes, *self._shape), stored.standing, stored)

    def replace(self, rows: Any, position: Position) -> Written:
        """All rows, tombstones of the keys that are gone, then the position: in one transaction, as far as one goes.

        Kafka ends a transaction after a while. Past half of that the position is made void and the rest follows in
        further ones: readers see no position until the content is whole.
        """
        types = column_types(rows, self._spec.columns)
        found = self._topic.look()
        self._located.require(found.stored)
        self._ensure(is_foreign=found.is_foreign)
        writer = self._writer(found.stored)
        standing = Standing(
            self._spec.name,
            new_generation([found.stored.standing.generation] if found.stored else []),
            self._topic.declaration,
            types,
            position,
        )
        live, kept = self._topic.live(), KeyDigests()
        counts = Counts()

        def content() -> Iterator[tuple[Change, str]]:
            for change in counts.fitting(changes_of(rows, *self._shape)):
                kept.add(change.key.encode())
                yield change, READ
            for key in self._topic.keys_to_remove(live, kept.array()):
                yield Change(key.decode(), None, position.lsn, ""), DELETE

        self._located.take(self._in_parts(writer, content(), standing))
        _log.info("view topic replaced", view=self._spec.name, generation=standing.generation, rows=counts.upserts)
        return counts.written

    def types(self) -> Mapping[str, str]:
        """As the newest position record has them."""
        return self._stored().standing.types

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The newest record of each key."""
        yield from self._topic.rows(self._spec.columns, self._stored().standing)

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        """The newest records of these keys, which nothing but reading all of them finds."""
        names = object_template(self._spec.key)
        texts = zip(*(json_texts(keys.column(name)) for name in self._spec.key), strict=True)
        wanted = frozenset(f"{{{names % values}}}".encode() for values in texts)
        if wanted:
            yield from self._topic.rows_of(wanted, self._spec.columns, self._stored().standing)

    @property
    def _shape(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._spec.columns, self._spec.key

    def _commit(self, changes: Iterator[Change], standing: Standing, before: Stored) -> Written:
        writer, counts = self._writer(before), Counts()
        envelope = self._envelope(standing)
        with self._transaction(writer) as transaction:
            for change in counts.fitting(changes):
                transaction.change(change, envelope)
            transaction.position(position_value(standing.fields()))
        self._located.take(Stored(standing, transaction.offset()))
        return counts.written

    def _in_parts(self, writer: Writer, changes: Iterator[tuple[Change, str]], standing: Standing) -> Stored:
        """One transaction, unless it takes too long; the last one says where the view stands."""
        envelope = self._envelope(standing)
        is_whole = False
        while not is_whole:
            with self._transaction(writer) as transaction:
                is_whole = self._is_whole(changes, transaction, envelope)
                transaction.position(position_value(standing.fields()) if is_whole else None)
        return Stored(standing, transaction.offset())

    def _is_whole(self, changes: Iterator[tuple[Change, str]], transaction: Transaction, envelope: Envelope) -> bool:
        for change, name in changes:
            transaction.change(change, envelope, name)
            if transaction.open_s > self._part_s:
                return False
        return True

    def _envelope(self, standing: Standing) -> Envelope:
        source_ms, now_ms = standing.position.source_ts_us // 1000, time.time_ns() // 1_000_000
        return Envelope(self._pipeline, self._spec.name, source_ms, now_ms)

    def _ensure(self, *, is_foreign: bool) -> None:
        """Make the topic; refuse to write into one that is somebody else's."""
        name, topics = self._topic.name, Topics(self._kafka)
        if is_foreign or topics.existing().get(name, 1) != 1:
            message = f"view {self._spec.name}: the topic {name} is not of this view"
            hint = f"is there a table view.{self._spec.name}? rename the view; else delete the topic"
            raise OperatorError(message, hint, code="VIEW_TOPIC_TAKEN")
        topics.ensure([table_topic(name, 1)])
        topics.ends({name: 1})  # which waits for its leader

    def _writer(self, known: Stored | None) -> Writer:
        """A writer of this process; the first one fences all others, and then what is known is looked at again."""
        if self._open is None:
            self._open = Writer(self._kafka, self._pipeline, self._spec.name, self._topic.name)
            if self._topic.look().stored != known:
                self._open = None
                raise overtaken("Kafka", self._spec.name)
        return self._open

    @contextmanager
    def _transaction(self, writer: Writer) -> Iterator[Transaction]:
        """After an error the next write begins with a new writer, which aborts what was left open."""
        try:
            with writer.transaction() as transaction:
                yield transaction
            self._topic.wait_for(transaction.offset())
        except BaseException:
            self._open = None
            raise

    def _stored(self) -> Stored:
        stored = self._topic.look().stored
        if stored is None:
            raise lost("Kafka", self._spec.name)
        return stored

    def _required(self) -> Stored:
        """As this process located or left it."""
        stored = self._stored()
        self._located.require(stored)
        return stored
