"""The rules of capture and of its publisher, broken."""

from __future__ import annotations

from typing import Final

import cdc.assembler
import cdc.batching
import cdc.machine
import cdc.open_transaction
import cdc.progress
import cdc.shapes
from tests.simulation import broker, capturing
from tests.simulation.mutants import broken

ASSEMBLER: Final = cdc.assembler.Assembler
MACHINE: Final = cdc.machine.CaptureMachine
OPEN: Final = cdc.open_transaction.OpenTransaction

CAPTURE: Final = (
    broken(
        "confirm only after the commit",
        MACHINE,
        "_commit",
        "yield Commit(self.progress)",
        "yield Confirm(self.progress.lsn); yield Commit(self.progress)",
    ),
    broken(
        "confirm what is committed, not what was received",
        MACHINE,
        "_take",
        "yield Confirm(self.progress.lsn)",
        "yield Confirm(message.end_lsn)",
    ),
    broken("skip what the topics hold", MACHINE, "_take", "whole.commit_lsn >= self.progress.lsn", "True"),
    broken("skip no more than that", MACHINE, "_take", ">= self.progress.lsn", "> self.progress.lsn"),
    broken(
        "take no keepalive's position inside a transaction",
        MACHINE,
        "_take",
        "not self._assembler.in_transaction",
        "True",
    ),
    broken(
        "never go back to an older position",
        MACHINE,
        "_take",
        "max(self._batch.reached, message.end_lsn)",
        "message.end_lsn",
        capture_killed=0.05,
    ),
    broken("skip the changes of a part", MACHINE, "_take_part", "part.require(commit_lsn)", "Part(commit_lsn, 0)"),
    broken(
        "skip no change behind a part",
        MACHINE,
        "_publish",
        "index >= done.changes",
        "index > done.changes or not done.changes",
    ),
    broken("say in the record that it is a part", MACHINE, "_next", "part=part", "part=None"),
    broken("write down an idle position", MACHINE, "_due", "moved = ", "return False\n    moved = "),
    broken(
        "count every chunk",
        cdc.batching.Batch,
        "take",
        "add_checksums(self.checksum, checksum(records))",
        "checksum(records)",
    ),
    broken(
        "keep the ends of what was not touched",
        cdc.progress,
        "_merged",
        "new.get(partition, end)",
        "new.get(partition, 0)",
    ),
    broken(
        "announce a shape before its rows",
        cdc.shapes.Shapes,
        "encoder",
        "not self.is_announced(relation)",
        "False",
    ),
    broken("a part is no boundary", cdc.progress.Progress, "is_boundary", "Kind.IDLE)", "Kind.IDLE, Kind.PART)"),
    broken(
        "a snapshot's piece is no boundary",
        cdc.progress.Progress,
        "is_boundary",
        "Kind.IDLE)",
        "Kind.IDLE, Kind.SNAPSHOT)",
    ),
    broken(
        "take an interrupted snapshot again",
        capturing,
        "decide_start",
        "return Start.SNAPSHOT_AGAIN",
        "return Start.STREAM",
    ),
    broken(
        "empty the topics before a snapshot is taken again",
        capturing.CaptureProcess,
        "_recreate_topics",
        "self._broker.recreate_tables()",
        "pass",
    ),
    broken("publish nothing of a savepoint rolled back", OPEN, "_cut", "self.spool.cut(mark)", "pass"),
    broken("forget how it described tables", OPEN, "_cut", "self._before[-1][0] >= mark", "False"),
    broken("learn tables from a streamed transaction", ASSEMBLER, "_transaction", "if done.latest:", "if known:"),
    broken(
        "fence older producers", broker.Broker, "take_over", "self._epochs[turn] += 1", "pass", commit_request_late=0.2
    ),
    broken(
        "abort what a dead producer left open",
        broker.Broker,
        "take_over",
        "self._abort(turn)",
        "pass",
    ),
    broken(
        "read the progress after taking over",
        capturing.CaptureProcess,
        "_session",
        "yield from self._take_over()\n    progress = self._newest()",
        "progress = self._newest()\n    yield from self._take_over()",
        commit_markers_late=0.5,
    ),
    broken(
        "read the progress after both producers are taken over",
        capturing.CaptureProcess,
        "_session",
        "yield from self._take_over()\n    progress = self._newest()",
        "self._publisher.start(0)\n    progress = self._newest()\n    yield NOT_FROZEN_HERE\n"
        "    self._publisher.start(1)",
        commit_request_late=0.2,
    ),
    broken(
        "throw a producer away whose commit timed out",
        capturing.CaptureProcess,
        "_commit",
        "self._publisher.commit(KafkaRecord(PROGRESS, 0, PROGRESS_KEY, progress.to_bytes()))",
        "record = KafkaRecord(PROGRESS, 0, PROGRESS_KEY, progress.to_bytes())\n"
        "    try:\n        self._publisher.commit(record)\n"
        "    except TransientError:\n        self._publisher.forget()",
    ),
    broken(
        "keep the progress record in the transaction",
        broker.SimulatedPublisher,
        "commit",
        "self._queue.append(progress)",
        "self._counts and (self._land(len(self._queue)), self._end_transaction(), self.forget())\n"
        "    self._queue.append(progress)",
    ),
)
