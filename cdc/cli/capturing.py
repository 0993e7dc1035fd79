"""`afterimage capture`: decides where to begin, takes the snapshot if there is none, streams, and starts over when
something was only temporarily wrong.

Keeps true: an error that needs a person ends the process with its code and remedy; nothing is confirmed past it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc import metrics
from cdc.capture import LookAgain, Stopped, Streaming
from cdc.check import fix
from cdc.cli.facts import look_at_source, newest_progress, read_lineage_now, read_slot_now
from cdc.cli.first_snapshot import first_snapshot
from cdc.cli.rejoining import RejoiningDriver
from cdc.errors import CdcError, OperatorError, TransientError
from cdc.lineage import Lineage, has_diverged, require_same_database, require_same_history
from cdc.log import get
from cdc.look import Look
from cdc.lookout import Watch, log_end, look_at_tables
from cdc.open_transaction import UNPLACED_CODE
from cdc.postgres import connect
from cdc.privacy import Privacy
from cdc.progress import Progress
from cdc.publisher import Publisher
from cdc.recover.run import Recovered, Recovery
from cdc.rejoining import Rejoining
from cdc.resume import SlotState, Start, decide_start, require_ours, require_recovery
from cdc.rotation import may_be_replaced
from cdc.schema_log import read_schemas
from cdc.settings import Settings
from cdc.slot_watch import SlotWatch
from cdc.tables import Tables
from cdc.timeline import TimelineGuard
from cdc.topics import Topics, pipeline_topics
from snapshot.run import SnapshotProgress
from snapshot.table_readers import TableReaders

_log = get(__name__)

_BACKOFF_FIRST_S: Final = 0.5
_BACKOFF_MAX_S: Final = 15.0
_LINGER_S: Final = 15.0
_LINGER_POLL_S: Final = 0.25


@dataclass(slots=True)
class CaptureRun:
    """One capture process."""

    settings: Settings
    wait: Callable[[float], bool]
    """Waits so many seconds; True when asked to stop meanwhile."""
    report: Callable[[SnapshotProgress], None]
    on_trouble: Callable[[CdcError, float], None]
    has_streamed: bool = False
    in_pieces: bool = True
    """Whether large transactions may come before they commit; not right after that left a message unplaced."""

    def run(self) -> None:
        """Capture until asked to stop, or until a person is needed (CdcError)."""
        with SlotWatch(self.settings):
            self._run()

    def _run(self) -> None:
        backoff = _BACKOFF_FIRST_S
        while True:
            began_s = time.monotonic()
            try:
                self._session()
            except Stopped:
                return
            except LookAgain:
                continue
            except CdcError as error:
                if not isinstance(error, TransientError) and not (self.has_streamed and may_be_replaced(error)):
                    raise
                self.in_pieces = error.code != UNPLACED_CODE
                lasted = time.monotonic() - began_s > _BACKOFF_MAX_S
                backoff = _BACKOFF_FIRST_S if lasted else min(backoff * 2, _BACKOFF_MAX_S)
                metrics.RESTARTS.labels(error.code).inc()
                self.on_trouble(error, backoff)
                # A refused secret needs a person, though no restart.
                say = _log.warning if isinstance(error, TransientError) else _log.error
                say("capture starts over", code=error.code, reason=error.message, backoff_s=backoff)
                if self.wait(backoff):
                    return

    def _session(self) -> None:
        settings = self.settings
        shutil.rmtree(settings.data / "spool", ignore_errors=True)
        topics = Topics(settings.kafka)
        topics.ensure(pipeline_topics(settings.pipeline))
        if newest_progress(settings) is None:
            self._prepare()
        self._await_slot()
        lineage = read_lineage_now(self.settings)
        self._require_startable(lineage)
        publisher = Publisher(settings.kafka, settings.pipeline, settings.capture.transaction_timeout_s)
        try:
            publisher.start()
            # Read in this order: whoever wrote to Kafka before we fenced it had made its slot before that.
            progress, slot, start = self._decide(lineage)
            if start is not Start.STREAM:
                progress = first_snapshot(settings, start, topics, slot, publisher, progress, self.report)
            assert progress is not None
            self._follow(lineage.marked(progress), lineage, topics, publisher)
        finally:
            publisher.close()

    def _follow(self, progress: Progress, lineage: Lineage, topics: Topics, publisher: Publisher) -> None:
        """See to the tables that changed, then stream."""
        settings, source = self.settings, self.settings.source
        known, privacy = read_schemas(settings.kafka, settings.pipeline), Privacy.of(source)

        def connected() -> AbstractContextManager[psycopg.Connection[Any]]:
            return connect(source, source.read, application=f"afterimage {settings.pipeline}")

        def looked(connection: psycopg.Connection[Any]) -> Look:
            return look_at_tables(connection, settings, known, privacy)

        with TimelineGuard(source, lineage) as guard:
            with connected() as connection:
                look = looked(connection)
                if not look.stuck:  # a table that is gone takes its rules' sense with it, and stops alone
                    privacy.require_fits(list(look.current.values()))
                tables = Tables(settings.pipeline, source.database, settings.kafka.partitions, {}, privacy)
                rejoining = Rejoining(tables, progress, known, log_end(connection), lambda: time.time_ns() // 1000)
                progress = RejoiningDriver(settings, tables, topics, publisher, guard.check, connection).run(
                    rejoining, look
                )
            interval_s, retry = settings.capture.lookout_interval_s, bool(rejoining.unread)
            self.has_streamed = True
            tables, stopped = rejoining.streaming(look), lambda: self.wait(0)
            with Watch(connected, looked, rejoining.settled(look), interval_s, retry=retry) as watch:
                readers = TableReaders(settings, tables, self.report)
                streaming = Streaming(
                    settings, tables, publisher, progress, readers, stopped, guard.check, watch.has_news
                )
                streaming.run(in_pieces=self.in_pieces)

    def recover(self, report: Callable[[Recovered], None], *, force: bool) -> Recovered:
        """Take a new slot and bring the topics to it by difference; capture goes on from there when it is started."""
        settings = self.settings
        self._await_slot()
        lineage = read_lineage_now(self.settings)
        self._recoverable(lineage, force=force)
        tables, sizes = look_at_source(settings)
        publisher = Publisher(settings.kafka, settings.pipeline, settings.capture.transaction_timeout_s)
        try:
            publisher.start()
            progress, slot = self._recoverable(lineage, force=force)
            _require_same_tables(progress, tables)
            schemas = read_schemas(settings.kafka, settings.pipeline)
            for record in schemas.values():
                if record.relation.oid in tables.relations:
                    tables.privacy.require_unchanged(record.relation, record.rules)
            rows = sum(size.rows for size in sizes.values())
            return Recovery(settings, tables, schemas, publisher, report).run(progress, slot, rows)
        finally:
            publisher.close()

    def _require_startable(self, lineage: Lineage) -> None:
        """Before a running recovery would be fenced. The slot first: another capture confirms what it has committed."""
        slot, progress = read_slot_now(self.settings), newest_progress(self.settings)
        self._start_of(progress, slot or read_slot_now(self.settings), lineage)

    def _decide(self, lineage: Lineage) -> tuple[Progress | None, SlotState | None, Start]:
        progress, slot = newest_progress(self.settings), read_slot_now(self.settings)
        return progress, slot, self._start_of(progress, slot, lineage)

    def _start_of(self, progress: Progress | None, slot: SlotState | None, lineage: Lineage) -> Start:
        require_same_database(progress, lineage)
        require_same_history(progress, lineage)
        require_ours(slot, self.settings.source.database)
        return decide_start(progress, slot, lineage.system_id)

    def _recoverable(self, lineage: Lineage, *, force: bool) -> tuple[Progress, SlotState | None]:
        progress, slot = newest_progress(self.settings), read_slot_now(self.settings)
        require_same_database(progress, lineage)
        require_ours(slot, self.settings.source.database)
        force = force or has_diverged(progress, lineage)
        return lineage.marked(require_recovery(progress, slot, lineage.system_id, force=force)), slot

    def _await_slot(self) -> None:
        """A killed capture's walsender may linger; a running capture's does not go away, and is not disturbed."""
        deadline = time.monotonic() + _LINGER_S
        while True:
            slot = read_slot_now(self.settings)
            if slot is None or slot.active_pid is None:
                return
            if time.monotonic() > deadline:
                raise _in_use(slot)
            if self.wait(_LINGER_POLL_S):
                raise Stopped

    def _prepare(self) -> None:
        """The first run makes the roles and the publication, where it has been given a role that may."""
        if self.settings.source.admin is not None:
            try:
                for line in fix(self.settings, passwords=False):
                    _log.info("prepared the source", made=line)
            except OperatorError as error:
                if error.code != "STANDBY":  # prepared on its primary, or the next step says what is missing
                    raise


def _in_use(slot: SlotState) -> OperatorError:
    return OperatorError(
        f"the slot {slot.name} is being read by another process (Postgres pid {slot.active_pid})",
        "another capture of this pipeline is running: stop it, or choose another pipeline name",
        code="SLOT_IN_USE",
    )


def _require_same_tables(progress: Progress, tables: Tables) -> None:
    new = sorted(r.qualified for r in tables.relations.values() if tables.topic(r) not in progress.ends)
    if new:
        raise OperatorError(
            f"a recovery brings no table in that was not captured before: {', '.join(new)}",
            "put it under source.exclude for the time of the recovery; capture reads it afterwards by itself",
            code="TABLE_ADDED",
        )
