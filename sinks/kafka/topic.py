"""A view's topic as its readers see it: committed records only, of one partition.

In: the topic's name. Out: where the view stands, the rows that it holds, keys that are to vanish. Keeps true: a
position is the newest position record and nothing else; one that was made void is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from cdc.errors import CdcError, OperatorError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, TOPIC_MISSING, consumer, extent, translate, translated
from cdc.settings import Kafka
from sinks.kafka.live import Digests, Fold, missing_from
from sinks.kafka.records import POSITION_KEY, Rows, parse_fields
from sinks.standing import Standing, parse_standing

_FIRST_LOOK: Final = 8
_SILENCE_S: Final = 30.0
_UNSEEN_S: Final = 0.001
_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Stored:
    """A standing, and the offset of the record that says it: no other record has that."""

    standing: Standing
    offset: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at the topic found; `is_foreign` if it has records but none that says, or said, a position."""

    stored: Stored | None
    is_foreign: bool = False
    has_position: bool = False
    """Whether there is such a record, of whichever declaration."""


@dataclass(slots=True)
class ViewTopic:
    """One view's, as it is declared now."""

    kafka: Kafka
    name: str
    view: str
    declaration: str
    _looking: Consumer | None = None
    _turn: Lock = field(default_factory=Lock)

    def look(self) -> Found:
        """Where the view stands; no position if the topic isn't there."""
        with self._turn:
            if self._looking is not None:
                try:
                    return self._newest(self._looking)
                except CdcError:
                    self._looking = None  # it may know the topic as it was before somebody deleted it
            client = self._consumer()
            try:
                found = self._newest(client)
            except OperatorError as error:
                if error.code == TOPIC_MISSING:
                    return Found(None)
                raise
            self._looking = client
            return found

    def wait_for(self, offset: int) -> None:
        """Until readers see that committed record: Kafka answers a commit before its markers lie in the partition."""
        began = time.monotonic()
        with self._turn:
            self._looking = client = self._looking or self._consumer()
            while self._bounds(client)[1] <= offset:
                if time.monotonic() - began > _SILENCE_S:
                    unseen = f"{self.name} does not show what was committed"
                    raise TransientError(unseen, "is its leader up and reachable?", code="KAFKA_UNAVAILABLE")
                time.sleep(_UNSEEN_S)

    def has_position(self) -> bool:
        """Whether the topic is a view's: it says, or said, a position."""
        return self.look().has_position

    def _newest(self, client: Consumer) -> Found:
        """Backwards in growing steps: after the newest one there may be records of an aborted transaction."""
        low, high = self._bounds(client)
        back = _FIRST_LOOK
        while True:
            begin = max(low, high - back)
            records = 0
            newest: Message | None = None
            for message in self._read(client, begin, 1 if back == _FIRST_LOOK else _AT_ONCE):
                records += 1
                newest = message if message.key() == POSITION_KEY else newest
            if newest is not None:
                return Found(self._stored(newest), has_position=True)
            if begin == low:
                return Found(None, is_foreign=records > 0)
            back *= 8

    def _stored(self, message: Message) -> Stored | None:
        fields = parse_fields(message.value())
        standing = parse_standing(fields, self.view, self.declaration) if fields else None
        return None if standing is None else Stored(standing, message.offset() or 0)

    def live(self) -> tuple[Digests, Any]:
        """The rows that the topic holds: digests of their keys, and their offsets."""
        fold = Fold()
        with closing(self._consumer()) as client:
            for message in self._records(client):
                key = message.key() or b""
                if key != POSITION_KEY:
                    fold.add(key, message.offset() or 0, is_row=message.value() is not None)
        return fold.live()

    def keys_to_remove(self, live: tuple[Digests, Any], kept: Digests) -> Iterator[bytes]:
        """The keys of the live rows that are not kept."""
        gone = missing_from(live, kept)
        if gone:
            yield from (message.key() or b"" for message in self._at(lambda offset: offset in gone))

    def rows(self, columns: tuple[str, ...], standing: Standing) -> Iterator[tuple[Any, ...]]:
        """The rows that it holds; read twice, so that only their places are kept in memory."""
        _, offsets = self.live()
        wanted = frozenset(offsets.tolist())
        rows = Rows(self.view, columns, standing.types)
        for message in self._at(wanted.__contains__):
            yield rows.row(message.value() or b"")

    def rows_of(
        self, keys: frozenset[bytes], columns: tuple[str, ...], standing: Standing
    ) -> Iterator[tuple[Any, ...]]:
        """Those with one of the keys."""
        newest: dict[bytes, bytes | None] = {}
        with closing(self._consumer()) as client:
            for message in self._records(client):
                if (key := message.key() or b"") in keys:
                    newest[key] = message.value()
        rows = Rows(self.view, columns, standing.types)
        yield from (rows.row(value) for value in newest.values() if value is not None)

    def _at(self, is_wanted: Callable[[int], bool]) -> Iterator[Message]:
        with closing(self._consumer()) as client:
            for message in self._records(client):
                if is_wanted(message.offset() or 0):
                    yield message

    def _records(self, client: Consumer) -> Iterator[Message]:
        low, high = self._bounds(client)
        if low < high:
            yield from self._read(client, low)

    def _bounds(self, client: Consumer) -> tuple[int, int]:
        return extent(client, self.name, f"reading {self.name}", _SILENCE_S)

    def _read(self, client: Consumer, begin: int, at_once: int = _AT_ONCE) -> Iterator[Message]:
        """From there to what is committed now; `at_once` of them are waited for."""
        with translated(f"reading {self.name}"):
            client.assign([TopicPartition(self.name, 0, begin)])
        heard = time.monotonic()
        while True:
            with translated(f"reading {self.name}"):
                messages = client.consume(at_once, 0.05)
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == END_OF_PARTITION:
                    return
                else:
                    raise translate(error, f"reading {self.name}")
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENCE_S:
                silent = f"{self.name} did not answer"
                raise TransientError(silent, "is Kafka up and reachable?", code="KAFKA_UNAVAILABLE")

    def _consumer(self) -> Consumer:
        return consumer(self.kafka, f"view-{self.view}", **{"fetch.wait.max.ms": 5})
