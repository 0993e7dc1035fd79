"""Capture as a state machine: frames in, Kafka transactions and confirmations out, all as effects that it yields.

Keeps true: a Kafka transaction holds whole Postgres transactions and one progress record; Postgres is confirmed only
what a committed progress record covers; what the topics hold already is skipped by position. No I/O, no clock here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from cdc.assembler import Assembler
from cdc.batching import Batch, Limits
from cdc.changes import UNCHANGED, Change, Origin, Record, Relation
from cdc.compiled import PlainLog
from cdc.effects import (
    Commit,
    Complete,
    Confirm,
    Effect,
    Ends,
    Finish,
    Left,
    Poll,
    Polled,
    Produce,
    ReadTable,
    Seal,
    Settle,
)
from cdc.frames import Keepalive, decode_frame
from cdc.merging import Due, Fed, Merging
from cdc.pgoutput import LogicalMessage
from cdc.progress import Kind, Part, Progress, Stop
from cdc.shapes import EncoderOf, Shapes
from cdc.transaction import Transaction

EncodeMessage = Callable[[LogicalMessage, Origin | None, int | None, int], Record]


class CaptureMachine:
    """Holds what a run of capture remembers; `run` is the machine itself."""

    def __init__(  # noqa: PLR0913  the pieces of one run
        self,
        start: Progress,
        assembler: Assembler,
        encoder_of: EncoderOf,
        announced: Mapping[int, Relation],
        limits: Limits,
        encode_message: EncodeMessage | None = None,
        stopped: Mapping[int, str] | None = None,
    ) -> None:
        """`stopped` are the topics of the tables that start.stopped names, by oid."""
        self.progress = start
        self._assembler = assembler
        self._encoder_of = encoder_of
        self._limits = limits
        self._encode_message = encode_message
        self._batch = Batch(reached=start.lsn)
        # No chunk is merged before what voids the topic of a table that is read again.
        self._boundary = max([start.lsn, *(stop.since or 0 for stop in start.stopped.values())])
        self._part = start.part
        self._merging = Merging(start.backfills, limits.remembered_keys_max)
        self._shapes = Shapes(encoder_of, announced, start, stopped or {}, self._merging)
        self._plain = PlainLog(lambda oid: self._shapes.compiled(oid, assembler.relation(oid), self._batch.reached))
        self._behind_us = 0
        self._committed_s = 0.0
        self._wall_ms = 0
        self._now_s = 0.0

    @property
    def stopped(self) -> dict[str, Stop]:
        """The tables that have stopped, by topic, as the next progress record says."""
        return self._shapes.stopped

    def run(self) -> Generator[Effect, Any, NoReturn]:
        """Follow the log for ever."""
        yield Confirm(self.progress.lsn, ask_reply=True)
        for backfill in self._merging.backfills:
            yield ReadTable(backfill)
        while True:
            polled: Polled = yield Poll(self._wait_s(), self._limits.is_far(self._behind_us))
            self._now_s, self._wall_ms = polled.now_s, polled.wall_ms
            yield from self._take_all(polled.frames)
            yield from self._merge(polled.fed)
            if self._due(polled.drained):
                yield from self._commit(*self._whole())
            elif not polled.frames and not self._batch.records:
                yield Confirm(self.progress.lsn, ask_reply=True)

    def _wait_s(self) -> float:
        if not self._batch.records:
            return self._limits.flush_interval_s if self._merging.backfills else self._limits.idle_interval_s
        return max(0.0, self._batch.opened_s + self._limits.interval_s(self._behind_us) - self._now_s)

    def _due(self, drained: bool) -> bool:
        batch, limits = self._batch, self._limits
        if batch.records:
            interval_s = limits.interval_s(self._behind_us)
            rested = self._now_s - self._committed_s >= interval_s
            return (drained and rested) or self._now_s - batch.opened_s >= interval_s or batch.is_full(limits)
        # Before a transaction begun in an earlier run is whole, no position is a boundary.
        if self._part is not None:
            return False
        moved = batch.reached > self.progress.lsn and self._now_s - self._committed_s >= limits.idle_interval_s
        return moved or self._merging.is_unsaved

    def _whole(self) -> tuple[Kind, Part | None]:
        """What the open Kafka transaction is between two of Postgres's: a boundary, unless one begun is to come yet."""
        if self._part is not None:
            return Kind.PART, self._part
        if self._merging.is_initial:
            return Kind.SNAPSHOT, None
        return (Kind.STREAM if self._batch.records else Kind.IDLE), None

    def _take_all(self, frames: Sequence[bytes]) -> Iterator[Effect]:
        at = 0
        while at < len(frames):
            plain = yield from self._take_plain(frames, at)
            if not plain:
                yield from self._take(frames[at])
            at += plain or 1

    def _take_plain(self, frames: Sequence[bytes], at: int) -> Generator[Effect, Any, int]:
        """Whole transactions whose records the compiled encoder gives, and how many frames those were."""
        batch, limits = self._batch, self._limits
        if self._part is not None or self._assembler.in_transaction or self._merging.backfills:
            return 0
        after_lsn = max(self._assembler.last_commit_lsn, self.progress.lsn - 1)
        room, bytes_room = limits.batch_records_max - batch.records, limits.batch_bytes_max - batch.size
        encoded = self._plain.encode(frames, at, after_lsn, self._wall_ms, room, bytes_room)
        if encoded is None:
            return 0
        self._assembler.last_commit_lsn = encoded.committed_lsn
        if encoded.records:
            yield from self._flush()
            batch.add_produced(len(encoded.records), encoded.size, encoded.checksum, self._now_s)
            yield Produce(encoded.records)
        batch.source_ts_us = max(batch.source_ts_us, encoded.source_ts_us)
        batch.reached = max(batch.reached, encoded.reached)
        self._behind_us = encoded.behind_us
        if self._batch.is_full(self._limits):
            yield from self._commit(*self._whole())
        return int(encoded.taken) - at

    def _take(self, frame: bytes) -> Iterator[Effect]:
        self._plain.forget()
        message = decode_frame(frame)
        if isinstance(message, Keepalive):
            if not self._assembler.in_transaction:
                self._batch.reached = max(self._batch.reached, message.end_lsn)
                self._batch.source_ts_us = max(self._batch.source_ts_us, message.sent_us)
            if message.reply_requested:
                yield Confirm(self.progress.lsn)
            return
        whole = self._assembler.feed(message.payload)
        if whole is None:
            return
        if isinstance(whole, LogicalMessage):
            yield from self._tell(whole)
        else:
            with whole:
                if whole.commit_lsn >= self.progress.lsn:
                    yield from self._publish(whole)
            self._batch.reached = max(self._batch.reached, whole.end_lsn)
            self._behind_us = message.sent_us - whole.commit_ts_us
        if self._batch.is_full(self._limits):
            yield from self._commit(*self._whole())

    def _tell(self, message: LogicalMessage) -> Iterator[Effect]:
        """A message of no transaction; the byte after its record is a boundary, and so says whether it was told."""
        if message.lsn > self.progress.lsn:
            yield from self._add_message(message, None, None)
        self._batch.reached = max(self._batch.reached, message.lsn)

    def _merge(self, fed: Fed) -> Generator[Effect, Any, None]:
        """Put the chunks that the log has passed right before the position that it has reached."""
        for backfill in fed.begun:
            if not self._shapes.may_be_read(backfill):
                yield Finish(backfill, "the table has stopped, or is just being read: see `afterimage status`", 0)
            elif self._merging.begin(backfill):
                yield ReadTable(backfill)
        for given_up in fed.given_up:
            self._merging.give_up(given_up.backfill)
            yield from self._shapes.finish(given_up.backfill, given_up.reason, self._batch.reached)
        for stray in self._merging.take(fed):
            yield Settle(stray, again=False)
        # Whoever was overtaken may never see the rest of the transaction that it began.
        while self._part is None and (due := self._merging.due(self._batch.reached, self._boundary)) is not None:
            yield from self._merge_chunk(due)
        # Not before: where views may stand no chunk can be merged any more, and the log may rest for long.
        if self._batch.is_full(self._limits):
            yield from self._commit(*self._whole())

    def _merge_chunk(self, due: Due) -> Generator[Effect, Any, None]:
        chunk, rows = due.chunk, due.rows
        relation = chunk.relation
        if not self._shapes.is_announced(relation):
            if self._merging.is_older_shape(chunk):
                rows = None
            elif not (yield from self._shapes.announce(relation, self._batch.reached)):
                self._merging.drop_table_of(chunk)
                yield Settle(chunk, again=False)
                return
            else:
                self._merging.shape_came(relation.oid, chunk.sees)
        if rows is not None:
            origin = Origin(self._batch.reached - 1, None, self._wall_ms * 1000)
            yield from self._add(self._encoder_of(relation).read_records(rows, origin, self._wall_ms))
        finished = self._merging.settle(chunk, len(rows) if rows is not None else None)
        yield Settle(chunk, again=rows is None)
        if finished is not None:
            yield from self._shapes.finish(finished, None, self._batch.reached)

    def _publish(self, transaction: Transaction) -> Generator[Effect, Any, None]:
        """The changes of one transaction; those that an earlier part brought are counted and passed over."""
        origin, commit_lsn = transaction.origin, transaction.commit_lsn
        done = self._take_part(commit_lsn)
        index = messages = 0
        for change in transaction.changes:
            if isinstance(change, LogicalMessage):
                if messages >= done.messages:
                    if self._batch.is_large(self._limits):
                        yield from self._end_part(Part(commit_lsn, index, messages))
                    yield from self._add_message(change, origin, 2 * index + 1)
                messages += 1
            else:
                if index >= done.changes:
                    if self._batch.is_large(self._limits):
                        yield from self._end_part(Part(commit_lsn, index, messages))
                    yield from self._add_change(change, origin, 2 * index + 1)
                index += 1
        self._batch.source_ts_us = max(self._batch.source_ts_us, transaction.commit_ts_us)

    def _add_change(self, change: Change, origin: Origin, ordinal: int) -> Generator[Effect, Any, None]:
        encoder = yield from self._shapes.encoder(change.relation, origin)
        if encoder is None:
            return
        whole: Change | Left | None = change
        if change.new is not None and UNCHANGED in change.new:
            self._batch.completed += 1
            whole = yield Complete(change, origin.commit_lsn)
        if isinstance(whole, Left):
            self._shapes.leave(change.relation, whole.topic, origin.commit_lsn)
        elif whole is not None:
            records = encoder.change_records(whole, origin, ordinal, self._wall_ms)
            self._merging.remember(origin.xid, records)
            yield from self._add(records)

    def _add_message(self, message: LogicalMessage, origin: Origin | None, ordinal: int | None) -> Iterator[Effect]:
        if self._encode_message is not None:
            yield from self._add([self._encode_message(message, origin, ordinal, self._wall_ms)])

    def _end_part(self, done: Part) -> Iterator[Effect]:
        """Commit what is open; whole transactions, if nothing of this one is in it."""
        yield from self._commit(*((Kind.PART, done) if done.changes or done.messages else self._whole()))

    def _take_part(self, commit_lsn: int) -> Part:
        """What of this transaction the topics hold, which must be the one that an earlier run began."""
        part, self._part = self._part, None
        return part.require(commit_lsn) if part is not None else Part(commit_lsn, 0)

    def _add(self, records: list[Record]) -> Iterator[Effect]:
        self._batch.add(records, self._now_s)
        if len(self._batch.buffer) >= self._limits.chunk_records:
            yield from self._flush()

    def _flush(self) -> Iterator[Effect]:
        if self._batch.buffer:
            yield Produce(self._batch.take())

    def _commit(self, kind: Kind, part: Part | None = None) -> Generator[Effect, Any, None]:
        yield from self._flush()
        ends: Ends = (yield Seal()) if self._batch.records else {}
        self.progress = self._next(kind, part, ends)
        self._merging.is_unsaved = False
        # The broker has work with every transaction, after its answer too: rest begins here.
        self._committed_s = yield Commit(self.progress)
        if self.progress.is_boundary:
            self._boundary = max(self._boundary, self.progress.lsn)
        self._batch = self._batch.after()
        yield Confirm(self.progress.lsn)

    def _next(self, kind: Kind, part: Part | None, ends: Ends) -> Progress:
        batch = self._batch
        return replace(
            self.progress.successor(kind, batch.records, batch.checksum, ends),
            lsn=batch.reached,
            source_ts_us=batch.source_ts_us or self.progress.source_ts_us,
            snapshot=None,
            part=part,
            backfills=self._merging.backfills,
            stopped=self._shapes.stopped,
            schemas=self._shapes.schemas,
        )
