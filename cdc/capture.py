"""Capture's driver: carries out the machine's effects against Postgres and Kafka, and starts over after a failure.

In: settings and a decided start. Out: topics. Keeps true: after any error everything is thrown away and begun again
from the last committed progress record, so there is no state that a failure could have torn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from cdc import compiled
from cdc.announcing import Announcing
from cdc.assembler import Assembler
from cdc.backfill import Backfill, Chunk
from cdc.batching import Limits
from cdc.changes import Change, Record, Trouble
from cdc.effects import (
    Announce,
    Commit,
    Complete,
    Confirm,
    Effect,
    Finish,
    Left,
    Poll,
    Polled,
    Produce,
    ReadTable,
    Seal,
    Settle,
)
from cdc.errors import TransientError
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.machine import CaptureMachine
from cdc.merging import Fed
from cdc.messages import MessageEncoder
from cdc.progress import Progress
from cdc.publisher import Publisher
from cdc.relations import SourceCatalogue
from cdc.replication import ReplicationConnection
from cdc.schema_record import SchemaRecord
from cdc.settings import Settings
from cdc.tables import Tables

_log = get(__name__)

RETRY_S: Final = 60.0
"""Until what kept a table from being read may be over."""


class Stopped(Exception):  # noqa: N818  not an error: the user asked for it
    """Raised inside the loop when capture has been asked to stop."""


class LookAgain(Exception):  # noqa: N818  not an error: a new session takes care of it
    """Raised inside the loop when the tables are no longer those that the session began with."""


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
        look_again: Callable[[], bool] = lambda: False,
    ) -> None:
        """`look_again` says, every now and then, whether the tables are other ones than those given here."""
        self._settings = settings
        self._tables = tables
        self._publisher = publisher
        self._readers = readers
        self._stop_requested = stop_requested
        self._before_commit = before_commit
        self._look_again = look_again
        self._announcing = Announcing(tables, self._tell)
        self._retry_s: float | None = None
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
            tables.stopped,
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
                return self._poll(effect)
            case Produce():
                return self._publisher.produce(effect.records)
            case Seal():
                return self._publisher.seal()
            case Commit():
                return self._commit(effect.progress)
            case Confirm():
                return self._open.confirm(effect.lsn, ask_reply=effect.ask_reply)
            case Complete():
                return self._complete(effect)
            case Announce():
                return self._announcing.announce(effect.relation, effect.lsn, self._machine.stopped)
            case ReadTable():
                return self._readers.read(effect.backfill)
            case Settle():
                return self._readers.settle(effect.chunk, again=effect.again)
            case Finish():
                return self._finish(effect)

    def _poll(self, effect: Poll) -> Polled:
        if self._stop_requested():
            raise Stopped
        if self._look_again() or (self._retry_s is not None and time.monotonic() > self._retry_s):
            raise LookAgain
        frames, drained = self._open.read(effect.wait_s, far_behind=effect.far_behind)
        fed = self._readers.take()
        return Polled(frames, drained, time.monotonic(), time.time_ns() // 1_000_000, fed)

    def _commit(self, progress: Progress) -> float:
        self._before_commit()
        self._publisher.commit(progress)
        if self._announcing.must_look:
            raise LookAgain
        return time.monotonic()

    def _finish(self, effect: Finish) -> None:
        backfill = effect.backfill
        if effect.failure is None:
            seconds = round(time.time() - backfill.started_us / 1e6, 1)
            _log.info("table read", table=backfill.qualified, rows=backfill.rows, seconds=seconds)
        else:
            _log.warning("reading table given up", table=backfill.qualified, reason=effect.failure)
        if backfill.joins:
            self._announcing.joined(backfill, effect.failure, effect.lsn)
            if effect.failure is not None:
                self._retry_s = time.monotonic() + RETRY_S
        answer = self._readers.answer(backfill, effect.failure)
        if answer is not None:
            self._publisher.note(answer)

    def _complete(self, effect: Complete) -> Change | Left | None:
        relation, found = effect.change.relation, self._catalogue.complete(effect.change)
        return self._announcing.leave(relation, found, effect.lsn) if isinstance(found, Trouble) else found

    def _tell(self, record: SchemaRecord) -> None:
        self._publisher.announce(record.key(), record.value())
        table, lsn, trouble = record.relation.qualified, format_lsn(record.lsn), record.stopped
        if trouble is None:
            _log.info("table announced", table=table, lsn=lsn)
        else:
            _log.warning("table stopped alone", table=table, lsn=lsn, code=trouble.code, reason=trouble.message)

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
