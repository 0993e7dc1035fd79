"""Capture against the models: the real machine, assembler, encoder and start decision under a thin driver.

In: the world. Out: a generator that stops before and after every effect, which is where it may be killed or frozen.
Keeps to cdc/cli/capturing.py, cdc/capture.py and snapshot/run.py step by step; each step is a method, for mutants.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cdc.assembler import Assembler
from cdc.backfill import Backfill
from cdc.batching import Limits
from cdc.changes import Origin, Relation
from cdc.changes import Record as KafkaRecord
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
from cdc.errors import OperatorError, TransientError
from cdc.machine import CaptureMachine
from cdc.progress import PROGRESS_KEY, Kind, Progress, add_checksums, checksum
from cdc.resume import SlotState, Start, decide_start
from cdc.schema_record import SchemaRecord
from tests.simulation.broker import PROGRESS, SCHEMA, Broker, SimulatedPublisher
from tests.simulation.readers import SimulatedReaders
from tests.simulation.source import SYSTEM_ID, Source
from tests.simulation.tables import DATABASE, PARTITIONS, PIPELINE, TOPICS
from tests.simulation.walsender import Walsender
from tests.simulation.world import Steps, World

NOT_FROZEN_HERE: Final = "destructive"
"""Where a process may die but not freeze: on its way to make slot and topics anew, which no fencing guards."""


@lru_cache(maxsize=16)
def encoder_of(relation: Relation) -> TableEncoder:
    """The real encoder."""
    return TableEncoder(PIPELINE, DATABASE, relation, PARTITIONS)


class CaptureProcess:
    """One `afterimage capture`. `run` ends only by OperatorError."""

    def __init__(self, world: World, source: Source, broker: Broker) -> None:
        self._world = world
        self._source = source
        self._broker = broker
        self._publisher = SimulatedPublisher(world, broker)
        self._readers = SimulatedReaders(world, source, encoder_of)
        self._asked = source.next_xid() << 16
        rng = world.rng
        self._limits = Limits(
            batch_records_max=rng.choice((4, 12, 50_000)),
            part_records_max=rng.choice((5, 9, 500_000)),
            part_bytes_max=rng.choice((1_500, 1 << 40, 1 << 40)),
            part_completed_max=rng.choice((1, 5_000)),
            chunk_records=rng.choice((1, 4, 2_000)),
            remembered_keys_max=rng.choice((1, 3, 200_000)),
        )

    def run(self) -> Steps:
        """Session after session."""
        while True:
            try:
                yield from self._session()
            except TransientError as error:
                self._world.note("capture starts over", error.message)
                yield "backoff"

    def _session(self) -> Steps:
        yield from self._await_slot()
        self._publisher = SimulatedPublisher(self._world, self._broker)
        yield "looked at source"
        yield from self._take_over()
        progress = self._newest()
        start = self._decide(progress, self._read_slot())
        yield "decided" if start is Start.STREAM else NOT_FROZEN_HERE
        self._world.saw("capture starts:", start.value)
        self._world.note("capture decides", start.value, progress and progress.lsn, progress and progress.part)
        if start is not Start.STREAM:
            progress = yield from self._snapshot(start, progress)
        assert progress is not None
        yield from self._stream(progress)

    def _await_slot(self) -> Steps:
        """A killed capture's walsender may linger; a running capture's does not go away, and is not disturbed."""
        for _ in range(3):
            if self._source.slot is None or self._source.slot.reader is None:
                return
            yield "waiting for the slot"
        if self._world.healed or self._world.chance(0.5):
            self._source.cut()  # it was silent for wal_sender_timeout
        else:
            raise OperatorError("the slot is being read by another process", code="SLOT_IN_USE")

    def _read_slot(self) -> SlotState | None:
        slot = self._source.slot
        return SlotState("slot", slot.confirmed, None, "pgoutput", DATABASE, lost=False) if slot else None

    def _take_over(self) -> Steps:
        self._publisher.start()
        yield NOT_FROZEN_HERE

    def _newest(self) -> Progress | None:
        log = self._broker.topics[PROGRESS][0]
        newest = [entry.record.value for _, entry in log.committed(0, len(log.log))]
        return Progress.from_bytes(newest[-1] or b"") if newest else None

    def _decide(self, progress: Progress | None, slot: SlotState | None) -> Start:
        return decide_start(progress, slot, SYSTEM_ID)

    def _snapshot(self, start: Start, previous: Progress | None) -> Steps:
        yield NOT_FROZEN_HERE
        self._source.drop_slot()
        yield NOT_FROZEN_HERE
        if start is Start.SNAPSHOT_AGAIN:
            self._recreate_topics()
            yield NOT_FROZEN_HERE
        ends = self._broker.ends()
        if any(any(of_topic) for of_topic in ends.values()):
            raise OperatorError("the topics hold records already", code="TOPICS_NOT_EMPTY")
        lsn = self._source.create_slot()
        relations = dict(self._source.relations)
        large = self._large(list(relations.values()))
        rows = [
            (relations[oid], row)
            for oid, of_table in self._source.rows.items()
            for row in of_table.values()
            if oid not in {backfill.oid for backfill in large}
        ]
        yield "slot made"
        now_us = self._world.wall_us
        for relation in relations.values():
            self._announce(relation, lsn)
        seq = previous.seq + 1 if previous else 1
        progress = Progress(seq, Kind.SNAPSHOT, 0, lsn, now_us, 0, 0, ends, SYSTEM_ID, {}, origin_lsn=lsn)
        yield from self._commit(progress)
        origin = Origin(lsn, None, now_us)
        records = [encoder_of(relation).read_record(row, origin, now_us // 1000) for relation, row in rows]
        at = 0
        while at < len(records):
            batch = records[at : at + self._world.rng.randint(1, 6)]
            at += len(batch)
            progress = yield from self._publish_rows(progress, batch, Kind.SNAPSHOT)
        return (yield from self._publish_rows(progress, [], Kind.SNAPSHOT if large else Kind.IDLE, large))

    def _large(self, relations: list[Relation]) -> tuple[Backfill, ...]:
        """Tables that are left to be read in chunks."""
        chosen = [relation for relation in relations if self._world.chance(0.5)]
        return tuple(_backfill(f"initial-{relation.oid}", relation, initial=True) for relation in chosen)

    def _recreate_topics(self) -> None:
        self._broker.recreate_tables()

    def _publish_rows(
        self, previous: Progress, records: list[KafkaRecord], kind: Kind, large: tuple[Backfill, ...] = ()
    ) -> Steps:
        self._publisher.produce(records)
        yield "snapshot rows produced"
        sealed = self._publisher.seal()
        progress = replace(
            previous.successor(kind, len(records), add_checksums(0, checksum(records)), sealed),
            snapshot={} if kind is Kind.SNAPSHOT else None,
            backfills=large,
        )
        yield from self._commit(progress)
        return progress

    def _stream(self, start: Progress) -> Steps:
        yield "before start of stream"
        connection = Walsender(self._world, self._source, start.lsn)
        try:
            yield from self._drive(start, connection)
        except TransientError:
            connection.cut()
            raise

    def _drive(self, start: Progress, connection: Walsender) -> Steps:
        assembler = Assembler(self._source.resolve, spill_directory=Path("unused"), spill_bytes=1 << 40)
        machine = CaptureMachine(start, assembler, encoder_of, self._known_relations(), self._limits)
        self._readers = SimulatedReaders(self._world, self._source, encoder_of)
        effects = machine.run()
        answer: Any = None
        while True:
            effect = effects.send(answer)
            yield f"before {type(effect).__name__}"
            answer = yield from self._carry_out(effect, connection)
            yield f"after {type(effect).__name__}"

    def _known_relations(self) -> dict[int, Relation]:
        log = self._broker.topics[SCHEMA][0]
        values = [entry.record.value for _, entry in log.committed(0, len(log.log))]
        relations = [SchemaRecord.from_value(value).relation for value in values if value is not None]
        return {**self._source.relations, **{relation.oid: relation for relation in relations}}

    def _carry_out(self, effect: Effect, connection: Walsender) -> Steps:  # noqa: C901  one line for each effect
        match effect:
            case Poll():
                return self._poll(effect.wait_s, connection)
            case Produce():
                return self._publisher.produce(list(effect.records))
            case Seal():
                return self._publisher.seal()
            case Commit():
                return (yield from self._commit(effect.progress))
            case Confirm():
                return connection.confirm(effect.lsn, ask_reply=effect.ask_reply)
            case Complete():
                return self._source.complete(effect.change)
            case Announce():
                return self._announce(effect.relation, effect.lsn)
            case ReadTable():
                return self._readers.read(effect.backfill)
            case Settle():
                return self._readers.settle(effect.chunk, again=effect.again)
            case Finish():
                return self._world.saw("table read to its end")

    def _poll(self, wait_s: float, connection: Walsender) -> Polled:
        world = self._world
        frames, drained = connection.read()
        world.now_s += world.rng.choice((0.0, 0.001, 0.03)) if frames else wait_s
        back_ms = 7_200_000 if world.happens("wall clock set back") else 0
        if not world.healed and world.chance(0.06):
            self._asked += 1
            relation = world.rng.choice(list(self._source.relations.values()))
            self._readers.ask(_backfill(f"asked-{self._asked}", relation, initial=False))
        return Polled(frames, drained, world.now_s, world.wall_us // 1000 - back_ms, self._readers.take())

    def _announce(self, relation: Relation, lsn: int) -> None:
        record = SchemaRecord(lsn, relation, TOPICS[relation.oid], PARTITIONS)
        self._publisher.announce(record.key(), record.value())

    def _commit(self, progress: Progress) -> Steps:
        self._publisher.commit(KafkaRecord(PROGRESS, 0, PROGRESS_KEY, progress.to_bytes()))
        yield "committed"


def _backfill(name: str, relation: Relation, *, initial: bool) -> Backfill:
    return Backfill(name, relation.oid, relation.schema, relation.name, TOPICS[relation.oid], initial)
