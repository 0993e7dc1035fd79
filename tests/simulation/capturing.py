"""Capture against the models: the real machine, assembler, encoder and start decision under a thin driver.

In: the world. Out: a generator that stops before and after every effect, which is where it may be killed or frozen.
Keeps to cdc/cli/capturing.py, cdc/capture.py and snapshot/run.py step by step; each step is a method, for mutants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cdc.announcing import Announcing
from cdc.assembler import Assembler
from cdc.backfill import Backfill
from cdc.batching import Limits
from cdc.changes import Change, Op, Origin, Relation, Trouble
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
from cdc.evolution import FOLLOWED, verdict
from cdc.look import Look, Name
from cdc.machine import CaptureMachine
from cdc.progress import PROGRESS_KEY, Kind, Progress, add_checksums, checksum
from cdc.rejoining import Copy, Make, Measure, Rejoining, Size, Tell
from cdc.rejoining import Effect as RejoiningEffect
from cdc.resume import SlotState, Start, decide_start
from cdc.schema_record import SchemaRecord
from cdc.tables import Tables
from tests.simulation.broker import PROGRESS, SCHEMA, TURNS, Broker, SimulatedPublisher
from tests.simulation.readers import SimulatedReaders
from tests.simulation.source import SYSTEM_ID, Source
from tests.simulation.tables import DATABASE, PARTITIONS, PIPELINE, TOPICS, Texts
from tests.simulation.walsender import Walsender
from tests.simulation.world import Steps, World

NOT_FROZEN_HERE: Final = "destructive"
"""Where a process may die but not freeze: on its way to make slot and topics anew, which no fencing guards."""


@lru_cache(maxsize=16)
def encoder_of(relation: Relation) -> TableEncoder:
    """The real encoder."""
    return TableEncoder(PIPELINE, DATABASE, relation, PARTITIONS)


class LookAgain(Exception):  # noqa: N818  not an error: a new session takes care of it
    """The tables are no longer those that the session began with."""


@dataclass(slots=True)
class CopiedRows:
    """snapshot.table.TableRows against the model."""

    world: World
    lsn: int
    relation: Relation
    rows: list[Texts]

    def batches(self, encoder: TableEncoder) -> Iterator[list[KafkaRecord]]:
        """A truncate, then every row."""
        origin, now_ms = Origin(self.lsn - 1, None, self.world.wall_us), self.world.wall_us // 1000
        yield encoder.change_records(Change(Op.TRUNCATE, self.relation, None, None), origin, 0, now_ms)
        while self.rows:
            yield [encoder.read_record(row, origin, now_ms) for row in self.rows[:2]]
            del self.rows[:2]


class CaptureProcess:
    """One `afterimage capture`. `run` ends only by OperatorError."""

    def __init__(self, world: World, source: Source, broker: Broker) -> None:
        self._world = world
        self._source = source
        self._broker = broker
        self._publisher = SimulatedPublisher(world, broker)
        self._readers = SimulatedReaders(world, source, encoder_of)
        self._asked = source.next_xid() << 16
        self._known: dict[Name, SchemaRecord] = {}
        self._settled: Look | None = None
        self._retry = False
        """Whether a table could not be read, which is tried again."""
        self._tables = Tables(PIPELINE, DATABASE, PARTITIONS, {})
        self._announcing = Announcing(self._tables, self._tell)
        rng = world.rng
        self._limits = Limits(
            flush_interval_s=0.02,
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
            except LookAgain:
                self._world.saw("looked at tables again")
                self._source.cut()
                yield "looks again"
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
        rejoining, look = self._rejoining(progress), self._look()
        yield from self._rejoin(rejoining, look)
        self._settled = rejoining.settled(look)
        self._retry = bool(rejoining.unread)
        yield from self._stream(rejoining.progress, rejoining.streaming(look))

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
        for turn in TURNS:
            self._publisher.start(turn)
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
        relations = {oid: self._source.relations[oid] for oid in self._source.captured}
        ends = {TOPICS[oid]: self._broker.ends()[TOPICS[oid]] for oid in relations}
        if any(any(of_topic) for of_topic in ends.values()):
            raise OperatorError("the topics hold records already", code="TOPICS_NOT_EMPTY")
        lsn = self._source.create_slot()
        large = self._large(list(relations.values()))
        rows = [
            (relations[oid], row)
            for oid, of_table in self._source.rows.items()
            if oid in relations
            for row in of_table.values()
            if oid not in {backfill.oid for backfill in large}
        ]
        yield "slot made"
        now_us = self._world.wall_us
        for relation in relations.values():
            self._tell(self._tables.schema_record(relation, lsn))
        seq = previous.seq + 1 if previous else 1
        progress = Progress(seq, Kind.SNAPSHOT, 0, lsn, now_us, 0, 0, ends, SYSTEM_ID, {}, origin_lsn=lsn)
        yield from self._commit(progress)
        origin = Origin(lsn - 1, None, now_us)
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

    def _rejoining(self, progress: Progress) -> Rejoining:
        self._known = self._read_schemas()
        return Rejoining(self._tables, progress, dict(self._known), self._source.wal_end, self._now_us)

    def _now_us(self) -> int:
        took_us = 60_000_000 if self._world.happens("copying takes long") else 0
        return self._world.wall_us + took_us

    def _read_schemas(self) -> dict[Name, SchemaRecord]:
        log, known = self._broker.topics[SCHEMA][0], dict[Name, SchemaRecord]()
        for _, entry in log.committed(0, len(log.log)):
            key = json.loads(entry.record.key)
            if entry.record.value is None:
                known.pop((key["schema"], key["table"]), None)
            else:
                known[key["schema"], key["table"]] = SchemaRecord.from_value(entry.record.value)
        return known

    def _look(self) -> Look:
        """cdc/lookout.py against the model."""
        source = self._source
        current: dict[Name, Relation] = {}
        stuck: dict[Name, Trouble] = {}
        changed: dict[Name, Trouble] = {}
        gone: set[Name] = set()
        for oid, relation in source.relations.items():
            name = relation.schema, relation.name
            record, trouble = self._known.get(name), source.stuck.get(oid)
            if trouble is None and (record is not None or oid in source.captured):
                current[name] = relation
                found = verdict(record.shape, relation) if record is not None and record.shape != relation else FOLLOWED
                if found.trouble is not None:
                    changed[name] = found.trouble
            elif record is not None and trouble is not None and oid in source.captured:
                stuck[name] = trouble
            elif record is not None:
                gone.add(name)
        return Look(current, stuck, changed, frozenset(gone), frozenset(source.relations))

    def _rejoin(self, rejoining: Rejoining, look: Look) -> Steps:
        effects = rejoining.run(look)
        answer: Any = None
        while True:
            try:
                effect = effects.send(answer)
            except StopIteration:
                return
            yield f"before {type(effect).__name__}"
            answer = yield from self._carry_out_rejoining(effect)
            yield f"after {type(effect).__name__}"

    def _carry_out_rejoining(self, effect: RejoiningEffect) -> Steps:
        match effect:
            case Measure():
                return {relation.oid: Size(0, not self._world.happens("table copied")) for relation in effect.relations}
            case Tell():
                return self._tell(effect.record, is_gone=effect.is_gone)
            case Make():
                return self._broker.ends()[effect.topic]
            case Copy():
                return self._copied(effect.relation)
            case Produce():
                return self._publisher.produce(list(effect.records))
            case Seal():
                return self._publisher.seal()
            case Commit():
                return (yield from self._commit(effect.progress))

    @contextmanager
    def _copied(self, relation: Relation) -> Iterator[CopiedRows]:
        """snapshot/table.py against the model."""
        source = self._source
        if self._world.happens("table cannot be read"):
            raise TransientError("a transaction stays open", code="OPEN_TRANSACTION")
        source.work_elsewhere()
        self._world.saw("table is copied")
        relation = source.relations[relation.oid]
        yield CopiedRows(self._world, source.wal_end, relation, list(source.rows[relation.oid].values()))

    def _stream(self, start: Progress, tables: Tables) -> Steps:
        yield "before start of stream"
        connection = Walsender(self._world, self._source, start.lsn)
        try:
            yield from self._drive(start, connection, tables)
        except (TransientError, LookAgain):
            connection.cut()
            raise

    def _drive(self, start: Progress, connection: Walsender, tables: Tables) -> Steps:
        assembler = Assembler(self._source.resolve, spill_directory=Path("unused"), spill_bytes=1 << 40)
        machine = CaptureMachine(start, assembler, encoder_of, tables.relations, self._limits, stopped=tables.stopped)
        self._announcing = Announcing(tables, self._tell)
        self._machine = machine
        self._readers = SimulatedReaders(self._world, self._source, encoder_of)
        effects = machine.run()
        answer: Any = None
        while True:
            effect = effects.send(answer)
            yield f"before {type(effect).__name__}"
            answer = yield from self._carry_out(effect, connection)
            yield f"after {type(effect).__name__}"

    def _carry_out(self, effect: Effect, connection: Walsender) -> Steps:  # noqa: C901  one line for each effect
        match effect:
            case Poll():
                return self._poll(effect.wait_s, connection)
            case Produce():
                return self._publisher.produce(list(effect.records))
            case Seal():
                return self._publisher.seal()
            case Commit():
                yield from self._commit(effect.progress)
                if self._announcing.must_look:
                    raise LookAgain
                return self._world.now_s
            case Confirm():
                return connection.confirm(effect.lsn, ask_reply=effect.ask_reply)
            case Complete():
                return self._source.complete(effect.change)
            case Announce():
                return self._announcing.announce(effect.relation, effect.lsn, self._machine.stopped)
            case ReadTable():
                return self._readers.read(effect.backfill)
            case Settle():
                return self._readers.settle(effect.chunk, again=effect.again)
            case Finish():
                return self._finish(effect)

    def _finish(self, effect: Finish) -> None:
        if effect.failure is None:
            self._world.saw("table read to its end")
        if effect.backfill.joins:
            self._announcing.joined(effect.backfill, effect.failure, effect.lsn)
            self._retry = self._retry or effect.failure is not None
            self._world.saw("table joined" if effect.failure is None else "table given up")

    def _poll(self, wait_s: float, connection: Walsender) -> Polled:
        world = self._world
        if self._must_look():
            raise LookAgain
        frames, drained = connection.read()
        world.now_s += world.rng.choice((0.0, 0.001, 0.03)) if frames else wait_s
        back_ms = 7_200_000 if world.happens("wall clock set back") else 0
        if not world.healed and world.chance(0.06):
            self._asked += 1
            relation = world.rng.choice(list(self._source.relations.values()))
            self._readers.ask(_backfill(f"asked-{self._asked}", relation, initial=False))
        return Polled(frames, drained, world.now_s, world.wall_us // 1000 - back_ms, self._readers.take())

    def _must_look(self) -> bool:
        """Every now and then; always when nothing else happens any more."""
        if not self._world.healed and not self._world.happens("tables looked at"):
            return False
        assert self._settled is not None
        return self._retry or self._look().summary() != self._settled.summary()

    def _tell(self, record: SchemaRecord, *, is_gone: bool = False) -> None:
        self._publisher.announce(record.key(), None if is_gone else record.value())

    def _commit(self, progress: Progress) -> Steps:
        self._publisher.commit(KafkaRecord(PROGRESS, 0, PROGRESS_KEY, progress.to_bytes()))
        yield "committed"


def _backfill(name: str, relation: Relation, *, initial: bool) -> Backfill:
    return Backfill(name, relation.oid, relation.schema, relation.name, TOPICS[relation.oid], initial)
