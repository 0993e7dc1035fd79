"""The rules by which tables stop alone, are read again and join, broken."""

from __future__ import annotations

from typing import Final

import cdc.machine
import cdc.merging
import cdc.progress
import cdc.rejoining
import cdc.shapes
import jobs.batch
import jobs.machine
from tests.simulation.mutants import broken

REJOINING: Final = cdc.rejoining.Rejoining
STOP: Final = cdc.progress.Stop

TABLES: Final = (
    broken("leave out from the stop on", STOP, "leaves_out", "lsn >= self.lsn", "lsn > self.lsn", table_rewritten=0.3),
    broken(
        "publish what commits from where the tables were looked at",
        STOP,
        "leaves_out_after",
        "lsn < self.since",
        "lsn <= self.since",
        table_rewritten=0.3,
    ),
    broken(
        "stay stopped from the first missing change on",
        STOP,
        "again",
        "min(lsn, self.lsn)",
        "lsn",
        table_rewritten=0.3,
    ),
    broken(
        "remember that it was whole in between",
        STOP,
        "again",
        "Stop(lsn, whole=self.until)",
        "Stop(lsn)",
        table_rewritten=0.3,
        table_stuck=0.3,
    ),
    broken(
        "a table is whole with its last chunk",
        cdc.merging.Merging,
        "settle",
        "if after is not None:",
        "if before.joins:\n        self.drop_table_of(chunk)\n        return before\n    if after is not None:",
        table_rewritten=0.3,
    ),
    broken(
        "drop the chunks of a table that stops",
        cdc.shapes.Shapes,
        "leave",
        "self._merging.drop(topic)",
        "pass",
        table_rewritten=0.5,
    ),
    broken(
        "merge all that is due before views may stand there",
        cdc.machine.CaptureMachine,
        "_merge",
        "yield from self._merge_chunk(due)\n",
        "yield from self._merge_chunk(due)\n        if self._batch.is_full(self._limits):\n"
        "            yield from self._commit(*self._whole())\n",
        table_rewritten=0.9,
    ),
    broken(
        "void what the topic held",
        REJOINING,
        "_begin",
        "encoder.change_records(void, origin, 0, now_us // 1000)",
        "[]",
        table_rewritten=0.3,
    ),
    broken(
        "publish nothing older after it",
        REJOINING,
        "_open_stop",
        "stop.again(self.progress.lsn)",
        "replace(stop, since=None, until=None)",
        table_rewritten=0.3,
        table_stuck=0.1,
    ),
    broken(
        "publish all from the look on",
        REJOINING,
        "_begin",
        "max(self.source_lsn, self.progress.lsn)",
        "max(self.source_lsn, self.progress.lsn) + 64",
        table_rewritten=0.9,
    ),
    broken(
        "no boundary before a first reading is done",
        REJOINING,
        "_kind",
        "backfill.initial",
        "False",
        table_rewritten=0.3,
    ),
    broken(
        "a first snapshot ends with the last table that is left",
        REJOINING,
        "_kind",
        "if any(",
        "if self.progress.kind is Kind.SNAPSHOT or any(",
        table_stuck=0.3,
        table_rewritten=0.3,
    ),
    broken(
        "a table stops at once while it is read for the first time",
        REJOINING,
        "_stops_at",
        "is_part or",
        "False or",
        table_stuck=0.4,
    ),
    broken(
        "a copy is whole where it was made",
        REJOINING,
        "_publish",
        "until=rows.lsn",
        "until=self.progress.lsn",
        table_rewritten=0.3,
        table_copied=0.8,
    ),
    broken("no view stands where its table is stopped", jobs.machine, "plan", "stop.covers(ceiling_lsn)", "False"),
    broken(
        "a view goes to where its table stopped",
        jobs.batch,
        "_up_to_stop",
        "boundary, stop.lsn)",
        "boundary, boundary.lsn)",
        table_rewritten=0.3,
    ),
)
