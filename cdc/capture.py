"""Capture's driver: carries out the machine's effects against Postgres and Kafka, and starts over after a failure.

In: settings and a decided start. Out: topics. Keeps true: after any error everything is thrown away and begun again
from the last committed progress record, so there is no state that a failure could have torn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc import compiled
from cdc.assembler import Assembler
from cdc.backfill import Backfill, Chunk
from cdc.changes import Record, Relation
from cdc.effects import (
    Announce,
    Commit,
    Complete,
    Confirm,
    Effect,
    Finish,
    Poll,
    Polled,
    Produce,
    ReadTable,
    Seal,
    Settle,
)
from cdc.envelope import TableEncoder
from cdc.errors import TransientError
from cdc.evolution import require_compatible
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.machine import CaptureMachine, Limits
from cdc.merging import Fed
from cdc.messages import MessageEncoder
from cdc.names import topic_name
from cdc.privacy import Privacy
from cdc.progress import Progress
from cdc.publisher import Publisher
from cdc.relations import SourceCatalogue
from cdc.replication import ReplicationConnection
from cdc.schema_log import SchemaRecord
from cdc.settings import Settings

_log = get(__name__)


class Stopped(Exception):  # noqa: N818  not an error: the user asked for it
    """Raised inside the loop when capture has been asked to stop."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What is captured: relations by oid with the topics' partition count, and which columns must not leave."""

    pipeline: str
    database: str
    partitions: int
    relations: Mapping[int, Relation]
    privacy: Privacy = field(default_factory=Privacy)

    @property
    def topics(self) -> list[str]:
        """Of all tables."""
        return [self.topic(relation) for relation in self.relations.values()]

    def topic(self, relation: Relation) -> str:
        """The topic that holds a table."""
        return topic_name(self.pipeline, relation.schema, relation.name)

    def encoder(self, relation: Relation) -> TableEncoder:
        """The encoder for a relation's rows; the one place where a column's rule takes effect."""
        treatments = self.privacy.treatments(relation)
        return TableEncoder(self.pipeline, self.database, relation, self.partitions, treatments)

    def schema_record(self, relation: Relation, lsn: int) -> SchemaRecord:
        """The schema record for a relation."""
        rules = self.privacy.fingerprint(relation.schema, relation.name)
        return SchemaRecord(lsn, self.privacy.published(relation), self.topic(relation), self.partitions, rules)


class Readers(Protocol):
    """Whatever reads tables in chunks beside the stream (snapshot.table_readers)."""

    def read(self, backfill: Backfill) -> None:
        """Begin with a table."""
        ...

    def take(self) -> Fed:
        """What has been read since."""
        ...

    def settle(self, chunk: Chunk, *, again: bool) -> None:
        """A chunk is merged, or to be read again."""
        ...

    def answer(self, backfill: Backfill, failure: str | None) -> Record | None:
        """What to write for whoever asked for this table."""
        ...

    def close(self) -> None:
        """End reading."""
        ...


class Streaming:
    """One run from a progress record until something ends it."""

    def __init__(  # noqa: PLR0913  the pieces of one run
        self,
        settings: Settings,
        tables: Tables,
        publisher: Publisher,
        start: Progress,
        readers: Readers,
        stop_requested: Callable[[], bool] = lambda: False,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._publisher = publisher
        self._readers = readers
        self._stop_requested = stop_requested
        self._before_commit = before_commit
        self._announced = {oid: tables.privacy.published(relation) for oid, relation in tables.relations.items()}
        self._catalogue = SourceCatalogue(settings.source, tables.relations.values(), tables.privacy)
        spool = settings.data / "spool"
        spool.mkdir(parents=True, exist_ok=True)
        self._assembler = Assembler(
            self._catalogue.resolve, spill_directory=spool, spill_bytes=settings.capture.spill_bytes
        )
        messages = MessageEncoder(tables.pipeline, tables.database)
        self._machine = CaptureMachine(
            start,
            self._assembler,
            tables.encoder,
            tables.relations,
            limits_of(settings),
            messages.record if settings.capture.messages else None,
        )
        self._connection: ReplicationConnection | None = None

    @property
    def progress(self) -> Progress:
        """The last progress record that was written or is being written."""
        return self._machine.progress

    def run(self, *, in_pieces: bool = True) -> None:
        """Stream until stopped (Stopped) or failed (CdcError); `in_pieces`: large transactions come as they grow."""
        source = self._settings.source
        connection = ReplicationConnection(
            source,
            source.stream,
            application=f"afterimage {self._settings.pipeline}",
            keepalive_s=self._settings.capture.keepalive_s,
        )
        self._connection = connection
        try:
            connection.start(
                self._settings.slot,
                self._settings.publication,
                self._machine.progress.lsn,
                messages=self._settings.capture.messages,
                in_pieces=in_pieces,
            )
            encoder = "python" if compiled.records is None else "compiled"
            _log.info(
                "streaming", lsn=format_lsn(self._machine.progress.lsn), slot=self._settings.slot, encoder=encoder
            )
            self._drive()
        finally:
            connection.close()
            self._readers.close()
            self._catalogue.close()
            self._assembler.close()

    def _drive(self) -> None:
        machine = self._machine.run()
        answer: Any = None
        while True:
            answer = self._carry_out(machine.send(answer))

    def _carry_out(self, effect: Effect) -> Any:  # noqa: C901  one line for each effect
        match effect:
            case Poll():
                return self._poll(effect.wait_s)
            case Produce():
                return self._publisher.produce(effect.records)
            case Seal():
                return self._publisher.seal()
            case Commit():
                self._before_commit()
                return self._publisher.commit(effect.progress)
            case Confirm():
                return self._open.confirm(effect.lsn, ask_reply=effect.ask_reply)
            case Complete():
                return self._catalogue.complete(effect.change)
            case Announce():
                return self._announce(effect)
            case ReadTable():
                return self._readers.read(effect.backfill)
            case Settle():
                return self._readers.settle(effect.chunk, again=effect.again)
            case Finish():
                return self._finish(effect)

    def _poll(self, wait_s: float) -> Polled:
        if self._stop_requested():
            raise Stopped
        frames, drained = self._open.read(wait_s)
        fed = self._readers.take()
        return Polled(frames, drained, time.monotonic(), time.time_ns() // 1_000_000, fed)

    def _finish(self, effect: Finish) -> None:
        backfill = effect.backfill
        if effect.failure is None:
            seconds = round(time.time() - backfill.started_us / 1e6, 1)
            _log.info("table read", table=backfill.qualified, rows=backfill.rows, seconds=seconds)
        else:
            _log.warning("reading table given up", table=backfill.qualified, reason=effect.failure)
        answer = self._readers.answer(backfill, effect.failure)
        if answer is not None:
            self._publisher.note(answer)

    def _announce(self, effect: Announce) -> None:
        record = self._tables.schema_record(effect.relation, effect.lsn)
        before = self._announced.get(effect.relation.oid)
        if before == record.relation:  # its rules alone set it apart from what the log says
            return
        if before is not None:
            require_compatible(before, record.relation)
        self._announced[effect.relation.oid] = record.relation
        self._publisher.announce(record.key(), record.value())
        _log.info("table announced", table=effect.relation.qualified, lsn=format_lsn(effect.lsn))

    @property
    def _open(self) -> ReplicationConnection:
        if self._connection is None:
            raise TransientError("not connected to Postgres")
        return self._connection


def limits_of(settings: Settings) -> Limits:
    """The machine's limits from the configuration."""
    capture = settings.capture
    return Limits(
        flush_interval_s=capture.flush_interval_s,
        batch_records_max=capture.batch_records_max,
        batch_bytes_max=capture.batch_bytes_max,
        idle_interval_s=capture.idle_interval_s,
    )
