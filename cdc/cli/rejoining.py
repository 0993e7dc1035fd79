"""Tables that stop alone, and tables that are read: what a session of capture does before it streams.

In: the newest progress record, the schema records and a look at the tables. Out: the record to stream from. Keeps true:
a table's topic never misses a change unsaid: it stands as stopped from before the first one until it was read whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import psycopg

from cdc.backfill import Backfill
from cdc.changes import Change, Op, Origin, Record, Relation, Trouble
from cdc.errors import CdcError, OperatorError, RecordError, TransientError
from cdc.evolution import joining
from cdc.log import get
from cdc.lookout import Look, followed
from cdc.lsn import format_lsn
from cdc.progress import Kind, Progress, Stop, add_checksums, checksum
from cdc.publisher import Publisher
from cdc.schema_log import SchemaRecord
from cdc.settings import Settings
from cdc.tables import Tables
from cdc.topics import Topics, table_topic
from snapshot.sizes import TableSize, fits_chunks, table_sizes
from snapshot.table import TableRows, table_at_cut

_log = get(__name__)

_COMMIT_RECORDS: Final = 50_000
_COMMIT_S: Final = 10.0
_OWN: Final = frozenset({"OPEN_TRANSACTION", "POSTGRES_CONFLICT", "TABLE_ALTERED"})
"""What may keep one table from being read while all else is well."""
Name = tuple[str, str]


@dataclass(slots=True)
class Rejoining:
    """One session's; `tables` knows how records are made."""

    settings: Settings
    tables: Tables
    topics: Topics
    publisher: Publisher
    before_commit: Callable[[], None]
    progress: Progress
    known: dict[Name, SchemaRecord]
    source_lsn: int
    """Where the source's log ended when the tables were looked at."""
    unread: set[Name] = field(default_factory=set)
    """Tables that could not be read just now; it is tried again later."""
    _announced: int = 0
    _records: int = 0
    _checksum: int = 0

    def run(self, look: Look, connection: psycopg.Connection[Any]) -> Progress:
        """Write down what stops, then read what must be read, or begin to, beside the stream."""
        for name in look.gone:
            self._forget(name)
        for name, trouble in look.stuck.items():
            self._stop(name, trouble, at=self._stops_at(trouble))
        for name, trouble in look.changed.items():
            self._stop(name, trouble, at=self.progress.lsn)
        self._commit_if_any()
        wanted = [relation for name, relation in look.current.items() if self._must_be_read(name, relation)]
        sizes = table_sizes(connection, wanted)
        for relation in wanted:
            if fits_chunks(self.tables, relation, sizes[relation.oid]):
                self._begin(relation, sizes[relation.oid])
            else:
                self._read(relation)
        self._commit_if_any()
        return self.progress

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

    def _stops_at(self, trouble: Trouble) -> int:
        """What was published whole until now still comes from the log; a publication may have left things out."""
        return self.progress.lsn if trouble.code.startswith("PUBLICATION") else self.source_lsn

    def _stop(self, name: Name, trouble: Trouble, at: int) -> None:
        record = self.known[name]
        stop = self.progress.stopped.get(record.topic)
        is_stopped = stop is not None and stop.is_open and not stop.is_read
        if is_stopped and record.stopped == trouble:
            return
        self._announce(replace(record, stopped=trouble, following=None))
        if not is_stopped:
            # Read again but not reached yet: then its topic lacks everything since it stopped before.
            first = stop.lsn if stop is not None and stop.covers(at) else at
            self._set(record.topic, Stop(first))
            lsn = format_lsn(at)
            _log.warning("table stops alone", table=".".join(name), lsn=lsn, code=trouble.code, reason=trouble.message)

    def _forget(self, name: Name) -> None:
        record = self.known.pop(name)
        self.publisher.announce(record.key(), None)
        self._announced += 1
        self._set(record.topic, Stop(self.progress.lsn))
        _log.info("table given up", table=".".join(name))

    def _must_be_read(self, name: Name, relation: Relation) -> bool:
        topic = self.tables.topic(relation)
        stop = self.progress.stopped.get(topic)
        if name not in self.known or stop is None:
            return name not in self.known
        is_read = any(reading.joins and reading.topic == topic for reading in self.progress.backfills)
        return stop.is_open and not (stop.is_read and is_read)

    def _begin(self, relation: Relation, size: TableSize) -> None:
        """Void what the topic holds, and have the table read in chunks while the others flow on.

        What committed before the look is in the chunks, since no reader has begun yet; what came since, in the log.
        """
        topic, name = self.tables.topic(relation), (relation.schema, relation.name)
        self._ensure(topic)
        before = self.progress.stopped.get(topic)
        since = max(self.source_lsn, self.progress.lsn)
        now_us = time.time_ns() // 1000
        void = Change(Op.TRUNCATE, relation, None, None)
        origin = Origin(since - 1, None, now_us)
        self._produce(self.tables.encoder(relation).change_records(void, origin, 0, now_us // 1000))
        record = self.tables.schema_record(relation, since, joining(relation))
        known = self.known.get(name)
        self._announce(record if known is None else replace(known, following=record.relation))
        self._set(topic, Stop(before.lsn if before is not None and before.is_open else self.progress.lsn, since))
        reading = Backfill(
            id=f"joins-{relation.oid}-{format_lsn(since)}",
            oid=relation.oid,
            schema=relation.schema,
            table=relation.name,
            topic=topic,
            initial=False,
            estimated_rows=size.rows,
            started_us=now_us,
            joins=True,
        )
        self.progress = replace(self.progress, backfills=(*self.progress.backfills, reading))

    def _read(self, relation: Relation) -> None:
        """The table as it is at one position; what goes wrong stays its own."""
        try:
            with table_at_cut(self.settings, relation.oid, self.tables.privacy) as rows:
                self._publish(rows)
        except TransientError as error:
            if error.code not in _OWN:
                raise
            self._put_off(relation, error)
        except (OperatorError, RecordError) as error:
            self._put_off(relation, error)

    def _put_off(self, relation: Relation, error: CdcError) -> None:
        """Another attempt comes later; until then the table stands as stopped, and the others flow on."""
        name = relation.schema, relation.name
        self.unread.add(name)
        self.known.setdefault(name, self.tables.schema_record(relation, self.progress.lsn))
        self._stop(name, Trouble(error.code, error.message, error.hint or ""), self.progress.lsn)
        self._commit_if_any()

    def _publish(self, rows: TableRows) -> None:
        relation = rows.relation
        topic = self.tables.topic(relation)
        self._ensure(topic)
        before = self.progress.stopped.get(topic)
        if before is None or not before.is_open:
            self._set(topic, Stop(self.progress.lsn))
        _log.info("table is read", table=relation.qualified, lsn=format_lsn(rows.lsn))
        committed_s = time.monotonic()
        for records in rows.batches(self.tables.encoder(relation)):
            self._produce(records)
            if self._records >= _COMMIT_RECORDS or time.monotonic() - committed_s > _COMMIT_S:
                self._commit()
                committed_s = time.monotonic()
        self._announce(self.tables.schema_record(relation, rows.lsn))
        self._set(topic, Stop(self.progress.stopped[topic].lsn, since=rows.lsn, until=rows.lsn))
        self._commit()
        _log.info("table has joined", table=relation.qualified, lsn=format_lsn(rows.lsn))

    def _produce(self, records: list[Record]) -> None:
        self.publisher.produce(records)
        self._records += len(records)
        self._checksum = add_checksums(self._checksum, checksum(records))

    def _ensure(self, topic: str) -> None:
        self.topics.ensure([table_topic(topic, self.tables.partitions)])
        if topic not in self.progress.ends:
            ends = self.topics.ends({topic: self.tables.partitions})
            self.progress = replace(self.progress, ends={**self.progress.ends, **ends})

    def _announce(self, record: SchemaRecord) -> None:
        self.publisher.announce(record.key(), record.value())
        self.known[record.relation.schema, record.relation.name] = record
        self._announced += 1

    def _set(self, topic: str, stop: Stop) -> None:
        """A table that stops is not read in chunks any further."""
        backfills = tuple(backfill for backfill in self.progress.backfills if backfill.topic != topic)
        stopped = {**self.progress.stopped, topic: stop}
        self.progress = replace(self.progress, stopped=stopped, backfills=backfills)

    def _commit_if_any(self) -> None:
        if self._announced or self._records:
            self._commit()

    def _commit(self) -> None:
        """A record of the chain at the same position: only these tables have moved."""
        before = self.progress
        sealed: Mapping[str, Mapping[int, int]] = self.publisher.seal() if self._records else {}
        # A part stays one, and so does a first snapshot of which large tables are still being read.
        kept = before.kind if before.kind in (Kind.PART, Kind.SNAPSHOT) else None
        kind = kept or (Kind.STREAM if self._records else Kind.IDLE)
        after = before.successor(kind, self._records, self._checksum, sealed)
        self.progress = replace(after, schemas=before.schemas + self._announced)
        self._announced = self._records = self._checksum = 0
        self.before_commit()
        self.publisher.commit(self.progress)
