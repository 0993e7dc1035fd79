"""Tables that stop alone, and tables that are read: what a session of capture does before it streams, as effects.

In: the newest progress record, the schema records and a look at the tables. Out: the record to stream from. Keeps true:
a table's topic never misses a change unsaid: it stands as stopped from before the first one until it was read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from cdc.backfill import Backfill
from cdc.changes import Change, Op, Origin, Record, Relation, Trouble
from cdc.effects import Commit, Produce, Seal
from cdc.encoder import RecordEncoder
from cdc.errors import CdcError, OperatorError, RecordError, TransientError
from cdc.evolution import joining
from cdc.look import Look, Name, followed
from cdc.lsn import format_lsn
from cdc.progress import Kind, Progress, Stop, add_checksums, checksum
from cdc.schema_record import SchemaRecord
from cdc.tables import Tables

_COMMIT_RECORDS: Final = 50_000
_COMMIT_US: Final = 10_000_000
_OWN: Final = frozenset({"OPEN_TRANSACTION", "POSTGRES_CONFLICT", "TABLE_ALTERED"})
"""What may keep one table from being read while all else is well."""


class Rows(Protocol):
    """A table at one position (snapshot.table.TableRows)."""

    lsn: int
    relation: Relation

    def batches(self, encoder: Any) -> Iterable[list[Record]]:
        """A truncate, then every row: positions before everything that commits at `lsn` or later."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """About so many rows, and whether they can be read in chunks beside the stream."""

    rows: int
    fits_chunks: bool


@dataclass(frozen=True, slots=True)
class Measure:
    """How large are these? Answer: Size by oid."""

    relations: Sequence[Relation]


@dataclass(frozen=True, slots=True)
class Tell:
    """Put a table's schema record into the open Kafka transaction; if it is `gone`, the record's tombstone."""

    record: SchemaRecord
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Make:
    """Make a topic if it is not there. Answer: the ends of its partitions."""

    topic: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Read the table whole. Answer: a context manager of its Rows, which may raise."""

    relation: Relation


Effect = Measure | Tell | Make | Copy | Produce | Seal | Commit
Steps = Generator[Effect, Any, None]


@dataclass(slots=True)
class Rejoining:
    """One session's; `tables` knows how records are made, `now_us` what time it is."""

    tables: Tables
    progress: Progress
    known: dict[Name, SchemaRecord]
    source_lsn: int
    """Where the source's log ended when the tables were looked at."""
    now_us: Callable[[], int]
    unread: set[Name] = field(default_factory=set)
    """Tables that could not be read just now; it is tried again later."""
    _told: int = 0
    _records: int = 0
    _checksum: int = 0

    def run(self, look: Look) -> Steps:
        """Write down what stops, then read what must be read, or begin to, beside the stream."""
        for name in look.gone:
            yield from self._forget(name)
        for name, trouble in look.stuck.items():
            yield from self._stop(name, trouble, at=self._stops_at(name, trouble))
        for name, trouble in look.changed.items():
            yield from self._stop(name, trouble, at=self.progress.lsn)
        yield from self._commit_if_any()
        wanted = [relation for name, relation in look.current.items() if self._must_be_read(name, relation)]
        sizes: Mapping[int, Size] = (yield Measure(wanted)) if wanted else {}
        for relation in wanted:
            size = sizes[relation.oid]
            yield from self._begin(relation, size.rows) if size.fits_chunks else self._read(relation)
        yield from self._commit_if_any()

    def settled(self, look: Look) -> Look:
        """What a later look finds if nothing else happens."""
        return replace(look, changed={name: look.changed[name] for name in look.changed.keys() & self.unread})

    def streaming(self, look: Look) -> Tables:
        """What the stream is told: the relations as announced, and which of them are stopped."""
        out = [topic for topic, stop in self.progress.stopped.items() if stop.is_open and not stop.is_read]
        relations = followed(self.known, out)
        stopped = {
            oid: topic
            for oid, relation in relations.items()
            if (topic := self.tables.topic(relation)) in self.progress.stopped
        }
        return replace(self.tables, relations=relations, stopped=stopped, seen=look.seen)

    def _stops_at(self, name: Name, trouble: Trouble) -> int:
        """What was published whole until now still comes from the log; a publication may have left things out."""
        topic = self.known[name].topic
        is_part = any(backfill.initial and backfill.topic == topic for backfill in self.progress.backfills)
        return self.progress.lsn if is_part or trouble.code.startswith("PUBLICATION") else self.source_lsn

    def _stop(self, name: Name, trouble: Trouble, at: int) -> Steps:
        record = self.known[name]
        stop = self.progress.stopped.get(record.topic)
        is_stopped = stop is not None and stop.is_open and not stop.is_read
        if is_stopped and record.stopped == trouble:
            return
        yield from self._tell(replace(record, stopped=trouble, following=None))
        if not is_stopped:
            self._set(record.topic, stop.again(at) if stop is not None else Stop(at))

    def _forget(self, name: Name) -> Steps:
        record = self.known.pop(name)
        self._told += 1
        yield Tell(record, is_gone=True)
        self._set(record.topic, self._open_stop(record.topic))

    def _must_be_read(self, name: Name, relation: Relation) -> bool:
        topic = self.tables.topic(relation)
        stop = self.progress.stopped.get(topic)
        if name not in self.known or stop is None:
            return name not in self.known
        is_read = any(reading.joins and reading.topic == topic for reading in self.progress.backfills)
        return stop.is_open and not (stop.is_read and is_read)

    def _begin(self, relation: Relation, rows: int) -> Steps:
        """Void what the topic holds, and have the table read in chunks while the others flow on.

        What committed before the look is in the chunks, since no reader has begun yet; what came since, in the log.
        """
        topic, name = self.tables.topic(relation), (relation.schema, relation.name)
        yield from self._ensure(topic)
        since = max(self.source_lsn, self.progress.lsn)
        now_us = self.now_us()
        void = Change(Op.TRUNCATE, relation, None, None)
        # Behind where its views stop; before all that follows, since chunks are merged further on.
        origin = Origin(since, None, now_us)
        encoder: RecordEncoder = self.tables.encoder(relation)
        yield from self._produce(encoder.change_records(void, origin, 0, now_us // 1000))
        record = self.tables.schema_record(relation, since, joining(relation))
        known = self.known.get(name)
        yield from self._tell(record if known is None else replace(known, following=record.relation))
        self._set(topic, replace(self._open_stop(topic), since=since))
        reading = Backfill(
            id=f"joins-{relation.oid}-{format_lsn(since)}",
            oid=relation.oid,
            schema=relation.schema,
            table=relation.name,
            topic=topic,
            initial=False,
            estimated_rows=rows,
            started_us=now_us,
            joins=True,
        )
        self.progress = replace(self.progress, backfills=(*self.progress.backfills, reading))

    def _read(self, relation: Relation) -> Steps:
        """The table as it is at one position; what goes wrong stays its own."""
        try:
            opened: AbstractContextManager[Rows] = yield Copy(relation)
            with opened as rows:
                yield from self._publish(rows)
        except TransientError as error:
            if error.code not in _OWN:
                raise
            yield from self._put_off(relation, error)
        except (OperatorError, RecordError) as error:
            yield from self._put_off(relation, error)

    def _put_off(self, relation: Relation, error: CdcError) -> Steps:
        """Another attempt comes later; until then the table stands as stopped, and the others flow on."""
        name = relation.schema, relation.name
        self.unread.add(name)
        self.known.setdefault(name, self.tables.schema_record(relation, self.progress.lsn))
        yield from self._stop(name, Trouble(error.code, error.message, error.hint or ""), self.progress.lsn)
        yield from self._commit_if_any()

    def _publish(self, rows: Rows) -> Steps:
        relation = rows.relation
        topic = self.tables.topic(relation)
        yield from self._ensure(topic)
        self._set(topic, self._open_stop(topic))
        committed_us = self.now_us()
        for records in rows.batches(self.tables.encoder(relation)):
            yield from self._produce(records)
            is_large = self._records >= _COMMIT_RECORDS or abs(self.now_us() - committed_us) > _COMMIT_US
            # Half of it must not stand where its views do.
            if is_large and rows.lsn > self.progress.lsn:
                yield from self._commit()
                committed_us = self.now_us()
        yield from self._tell(self.tables.schema_record(relation, rows.lsn))
        self._set(topic, replace(self.progress.stopped[topic], since=rows.lsn, until=rows.lsn))
        yield from self._commit()

    def _produce(self, records: list[Record]) -> Steps:
        yield Produce(records)
        self._records += len(records)
        self._checksum = add_checksums(self._checksum, checksum(records))

    def _ensure(self, topic: str) -> Steps:
        ends: tuple[int, ...] = yield Make(topic)
        self.progress = replace(self.progress, ends={topic: ends, **self.progress.ends})

    def _tell(self, record: SchemaRecord) -> Steps:
        yield Tell(record)
        self.known[record.relation.schema, record.relation.name] = record
        self._told += 1

    def _open_stop(self, topic: str) -> Stop:
        """The topic's stop, not read so far. It stops here already: nothing older may come after what is read."""
        stop = self.progress.stopped.get(topic)
        return stop.again(self.progress.lsn) if stop is not None else Stop(self.progress.lsn)

    def _set(self, topic: str, stop: Stop) -> None:
        """A table that stops is not read in chunks any further."""
        backfills = tuple(backfill for backfill in self.progress.backfills if backfill.topic != topic)
        stopped = {**self.progress.stopped, topic: stop}
        self.progress = replace(self.progress, stopped=stopped, backfills=backfills)

    def _commit_if_any(self) -> Steps:
        if self._told or self._records:
            yield from self._commit()

    def _commit(self) -> Steps:
        """A record of the chain at the same position: only these tables have moved."""
        before = self.progress
        sealed: Mapping[str, Mapping[int, int]] = (yield Seal()) if self._records else {}
        after = before.successor(self._kind(), self._records, self._checksum, sealed)
        self.progress = replace(after, schemas=before.schemas + self._told)
        self._told = self._records = self._checksum = 0
        yield Commit(self.progress)

    def _kind(self) -> Kind:
        """A part stays one, and so does a first snapshot as long as a large table of it is still being read."""
        if self.progress.kind is Kind.PART:
            return Kind.PART
        if any(backfill.initial for backfill in self.progress.backfills):
            return Kind.SNAPSHOT
        return Kind.STREAM if self._records else Kind.IDLE
