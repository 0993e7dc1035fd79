"""`afterimage capture`: decides where to begin, takes the snapshot if there is none, streams, and starts over when
something was only temporarily wrong.

Keeps true: an error that needs a person ends the process with its code and remedy; nothing is confirmed past it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cdc import metrics
from cdc.capture import Stopped, Streaming, Tables
from cdc.catalog import load_relations
from cdc.changes import Relation
from cdc.check import fix
from cdc.check.publication import require_publication
from cdc.errors import CdcError, OperatorError, TransientError
from cdc.lineage import Lineage, has_diverged, require_same_database, require_same_history
from cdc.log import get
from cdc.open_transaction import UNPLACED_CODE
from cdc.postgres import connect
from cdc.privacy import Privacy
from cdc.progress import Progress
from cdc.progress_log import ProgressLog
from cdc.publisher import Publisher
from cdc.recover.run import Recovered, Recovery
from cdc.replication import ReplicationConnection
from cdc.resume import SlotState, Start, decide_start, require_ours, require_recovery
from cdc.rotation import may_be_replaced
from cdc.schema_log import SchemaRecord, read_schemas
from cdc.settings import Settings
from cdc.slot_watch import SlotWatch
from cdc.slots import read_slot
from cdc.timeline import TimelineGuard, database_oid, read_lineage
from cdc.topics import Topics, pipeline_topics, table_topic
from snapshot.run import InitialSnapshot, SnapshotProgress
from snapshot.sizes import TableSize, table_sizes
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
        if self._newest() is None:
            self._prepare()
        self._await_slot()
        lineage = self._lineage()
        self._require_startable(lineage)
        tables, sizes = self._look_at_source()
        publisher = Publisher(settings.kafka, settings.pipeline, settings.capture.transaction_timeout_s)
        try:
            publisher.start()
            # Read in this order: whoever wrote to Kafka before we fenced it had made its slot before that.
            progress, slot, start = self._decide(lineage)
            if start is not Start.STREAM:
                progress = self._snapshot(start, topics, tables, slot, publisher, progress, sizes)
            assert progress is not None
            self._require_same_tables(progress, tables)
            tables = self._as_announced(tables)
            readers = TableReaders(settings, tables, self.report)
            with TimelineGuard(settings.source, lineage) as guard:
                progress = lineage.marked(progress)
                self.has_streamed = True
                streaming = Streaming(settings, tables, publisher, progress, readers, lambda: self.wait(0), guard.check)
                streaming.run(in_pieces=self.in_pieces)
        finally:
            publisher.close()

    def recover(self, report: Callable[[Recovered], None], *, force: bool) -> Recovered:
        """Take a new slot and bring the topics to it by difference; capture goes on from there when it is started."""
        settings = self.settings
        self._await_slot()
        lineage = self._lineage()
        self._recoverable(lineage, force=force)
        tables, sizes = self._look_at_source()
        publisher = Publisher(settings.kafka, settings.pipeline, settings.capture.transaction_timeout_s)
        try:
            publisher.start()
            progress, slot = self._recoverable(lineage, force=force)
            self._require_same_tables(progress, tables)
            announced = self._announced(tables)
            rows = sum(size.rows for size in sizes.values())
            return Recovery(settings, tables, announced, publisher, report).run(progress, slot, rows)
        finally:
            publisher.close()

    def _require_startable(self, lineage: Lineage) -> None:
        """Before a running recovery would be fenced. The slot first: another capture confirms what it has committed."""
        slot, progress = self._read_slot(), self._newest()
        self._start_of(progress, slot or self._read_slot(), lineage)

    def _decide(self, lineage: Lineage) -> tuple[Progress | None, SlotState | None, Start]:
        progress, slot = self._newest(), self._read_slot()
        return progress, slot, self._start_of(progress, slot, lineage)

    def _start_of(self, progress: Progress | None, slot: SlotState | None, lineage: Lineage) -> Start:
        require_same_database(progress, lineage)
        require_same_history(progress, lineage)
        require_ours(slot, self.settings.source.database)
        return decide_start(progress, slot, lineage.system_id)

    def _recoverable(self, lineage: Lineage, *, force: bool) -> tuple[Progress, SlotState | None]:
        progress, slot = self._newest(), self._read_slot()
        require_same_database(progress, lineage)
        require_ours(slot, self.settings.source.database)
        force = force or has_diverged(progress, lineage)
        return lineage.marked(require_recovery(progress, slot, lineage.system_id, force=force)), slot

    def _await_slot(self) -> None:
        """A killed capture's walsender may linger; a running capture's does not go away, and is not disturbed."""
        deadline = time.monotonic() + _LINGER_S
        while True:
            slot = self._read_slot()
            if slot is None or slot.active_pid is None:
                return
            if time.monotonic() > deadline:
                raise _in_use(slot)
            if self.wait(_LINGER_POLL_S):
                raise Stopped

    def _read_slot(self) -> SlotState | None:
        source = self.settings.source
        with connect(source, source.read, application="afterimage slot") as connection:
            return read_slot(connection, self.settings.slot)

    def _prepare(self) -> None:
        """The first run makes the roles and the publication, where it has been given a role that may."""
        if self.settings.source.admin is not None:
            try:
                for line in fix(self.settings):
                    _log.info("prepared the source", made=line)
            except OperatorError as error:
                if error.code != "STANDBY":  # prepared on its primary, or the next step says what is missing
                    raise

    def _lineage(self) -> Lineage:
        source = self.settings.source
        with connect(source, source.read, application="afterimage lineage") as connection:
            oid = database_oid(connection)
        replication = ReplicationConnection(source, source.stream, application=f"afterimage {self.settings.pipeline}")
        try:
            return read_lineage(replication, oid)
        finally:
            replication.close()

    def _look_at_source(self) -> tuple[Tables, dict[int, TableSize]]:
        settings = self.settings
        source = settings.source
        with connect(source, source.read, application=f"afterimage {settings.pipeline}") as connection:
            relations = load_relations(connection, source.tables, source.exclude)
            _require_keys(relations)
            privacy = Privacy.of(source)
            privacy.require_fits(relations)
            require_publication(connection, settings.publication, relations)
            sizes = table_sizes(connection, relations)
        by_oid = {relation.oid: relation for relation in relations}
        tables = Tables(settings.pipeline, source.database, settings.kafka.partitions, by_oid, privacy)
        return tables, sizes

    def _newest(self) -> Progress | None:
        log = ProgressLog(self.settings.kafka, self.settings.pipeline)
        try:
            return log.newest()
        finally:
            log.close()

    def _snapshot(  # noqa: PLR0913  the pieces of one session
        self,
        start: Start,
        topics: Topics,
        tables: Tables,
        slot: SlotState | None,
        publisher: Publisher,
        previous: Progress | None,
        sizes: dict[int, TableSize],
    ) -> Progress:
        settings = self.settings
        plans = [table_topic(topic, tables.partitions) for topic in tables.topics]
        # Dropping and deleting can't be fenced: a process that stood still since it took over asks right before.
        if slot is not None:
            publisher.require_newest()
            self._drop_leftover(slot)
        if start is Start.SNAPSHOT_AGAIN:
            _log.warning("an interrupted snapshot is taken again from the start")
            publisher.require_newest()
            topics.recreate(plans)
        else:
            topics.ensure(plans)
        ends = topics.ends({plan.name: plan.partitions for plan in plans})
        if any(end for partition_ends in ends.values() for end in partition_ends):
            raise OperatorError(
                "the pipeline's topics hold records, but its progress topic is empty",
                "delete the pipeline's topics, or capture under another pipeline name",
                code="TOPICS_NOT_EMPTY",
            )
        return InitialSnapshot(settings, tables, publisher, ends, previous, sizes).run(self.report)

    def _drop_leftover(self, slot: SlotState) -> None:
        """A slot without a complete snapshot is of no use: its exported snapshot died with the process that made it."""
        source = self.settings.source
        replication = ReplicationConnection(source, source.stream, application="afterimage snapshot")
        try:
            replication.drop_slot(slot.name)
        finally:
            replication.close()

    def _require_same_tables(self, progress: Progress, tables: Tables) -> None:
        wanted = {tables.topic(relation): relation.qualified for relation in tables.relations.values()}
        new = sorted(name for topic, name in wanted.items() if topic not in progress.ends)
        if new:
            raise OperatorError(
                f"not captured from the start: {', '.join(new)}",
                "a table cannot join a running pipeline yet: take it out of source.tables, "
                "or capture under a new pipeline name",
                code="TABLE_ADDED",
            )

    def _as_announced(self, tables: Tables) -> Tables:
        """The relations as the topics have them, which a change in the log is then compared with."""
        known = {record.relation.oid: record.relation for record in self._announced(tables).values()}
        return replace(tables, relations={**tables.relations, **known})

    def _announced(self, tables: Tables) -> dict[tuple[str, str], SchemaRecord]:
        """What the topics say of the tables; their columns' rules must be today's."""
        schemas = read_schemas(self.settings.kafka, self.settings.pipeline)
        for record in schemas.values():
            if record.relation.oid in tables.relations:
                tables.privacy.require_unchanged(record.relation, record.rules)
        return schemas


def _require_keys(relations: list[Relation]) -> None:
    keyless = [relation.qualified for relation in relations if not relation.key]
    if keyless:
        raise OperatorError(
            f"without a primary key, rows can't be told apart: {', '.join(keyless)}",
            "add a primary key, or name the table under source.exclude",
            code="NO_KEY",
        )


def _in_use(slot: SlotState) -> OperatorError:
    return OperatorError(
        f"the slot {slot.name} is being read by another process (Postgres pid {slot.active_pid})",
        "another capture of this pipeline is running: stop it, or choose another pipeline name",
        code="SLOT_IN_USE",
    )
