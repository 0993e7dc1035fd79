"""Capture's machine driven by hand: frames in, and out come its effects up to the next Poll."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cdc.assembler import Assembler
from cdc.backfill import RowImage
from cdc.batching import Limits
from cdc.changes import Change, Origin, Record
from cdc.effects import Announce, Commit, Complete, Effect, Left, Poll, Polled, Produce, Seal
from cdc.frames import POSTGRES_EPOCH_US
from cdc.machine import CaptureMachine
from cdc.merging import NOTHING, Fed
from cdc.pgoutput import LogicalMessage
from cdc.progress import Kind, Progress
from tests.support import frames

TABLE = frames.table()
TOPIC = "shop.public.accounts"
MESSAGES = "shop._messages"
START = Progress(4, Kind.STREAM, 50, 100, 9, 0, 0, {TOPIC: (7, 3)}, "7000")
LIMITS = Limits(flush_interval_s=1.0, idle_interval_s=5.0, part_records_max=3, batch_records_max=6, chunk_records=2)


class Encoder:
    """One record a change, whose value says which."""

    compiled = None

    def change_records(self, change: Change, origin: Origin, ordinal: int, ts_ms: int) -> list[Record]:
        return [Record(TOPIC, 0, b"k", f"{origin.commit_lsn}:{ordinal}:{ts_ms}".encode())]

    def read_records(self, images: Sequence[RowImage], origin: Origin, ts_ms: int) -> list[Record]:
        return [Record(TOPIC, image.partition, image.key, f"{origin.commit_lsn}".encode()) for image in images]


def message_record(message: LogicalMessage, origin: Origin | None, ordinal: int | None, ts_ms: int) -> Record:
    commit_lsn = origin.commit_lsn if origin is not None else None
    return Record(MESSAGES, 0, b"k", f"{message.lsn}:{commit_lsn}:{ordinal}:{ts_ms}".encode())


class Driven:
    """A machine with its newest effect; `see` sends frames and goes on to the next Poll."""

    def __init__(
        self,
        start: Progress = START,
        limits: Limits = LIMITS,
        announced: bool = True,
        refused: bool = False,
        stopped: dict[int, str] | None = None,
    ) -> None:
        assembler = Assembler(lambda _: TABLE, spill_directory=Path("unused"), spill_bytes=1 << 30)
        known = {TABLE.oid: TABLE} if announced else {}
        machine = CaptureMachine(start, assembler, lambda _: Encoder(), known, limits, message_record, stopped)
        self._refused = refused
        self._effects: Generator[Effect, Any, Any] = machine.run()
        self._answer: Any = None
        self.now_s = 0.0
        self.effects: list[Effect] = []
        self._to_poll()

    def see(self, *sent: bytes, drained: bool = True, after_s: float = 2.0, fed: Fed = NOTHING) -> list[Effect]:
        self.now_s += after_s
        self.effects = []
        self._answer = Polled(sent, drained, self.now_s, 77, fed)
        self._to_poll()
        return self.effects

    def _to_poll(self) -> None:
        while True:
            effect = self._effects.send(self._answer)
            self._answer = {TOPIC: {0: 11}} if isinstance(effect, Seal) else None
            if isinstance(effect, Commit):
                self._answer = self.now_s
            if isinstance(effect, Complete):
                self._answer = Left(TOPIC) if self._refused else replace(effect.change, new=("1", "whole"))
            if isinstance(effect, Announce):
                self._answer = Left(TOPIC) if self._refused else None
            self.effects.append(replace_records(effect))
            if isinstance(effect, Poll):
                return


def replace_records(effect: Effect) -> Effect:
    return Produce(tuple(effect.records)) if isinstance(effect, Produce) else effect


def transaction(commit_lsn: int, changes: int, end_lsn: int | None = None) -> list[bytes]:
    rows = [frames.insert(TABLE.oid, (str(number), "x")) for number in range(changes)]
    return framed(
        frames.begin(commit_lsn, 5, POSTGRES_EPOCH_US),
        frames.relation(frames.relation_message(TABLE)),
        *rows,
        frames.commit(commit_lsn, end_lsn),
    )


def framed(*payloads: bytes) -> list[bytes]:
    return [frames.wal_data(payload) for payload in payloads]


def values(effects: Sequence[Effect]) -> list[str]:
    return [
        record.value.decode()
        for effect in effects
        if isinstance(effect, Produce)
        for record in effect.records
        if record.value
    ]


def commits(effects: Sequence[Effect]) -> list[Progress]:
    return [effect.progress for effect in effects if isinstance(effect, Commit)]
