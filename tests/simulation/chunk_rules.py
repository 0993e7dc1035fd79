"""The rules by which chunks of tables are merged with the log, broken."""

from __future__ import annotations

from typing import Final

import cdc.machine
import cdc.merging
import cdc.visibility
import cdc.window
from tests.simulation import capturing, readers
from tests.simulation.mutants import broken

MACHINE: Final = cdc.machine.CaptureMachine
MERGING: Final = cdc.merging.Merging
WINDOW: Final = cdc.window.Window

CHUNKS: Final = (
    broken(
        "leave out rows changed by transactions that the chunk does not see",
        WINDOW,
        "current",
        "if not chunk.sees.sees(changed.xid)",
        "if False",
    ),
    broken(
        "a commit may be in the log before anybody sees it",
        cdc.visibility.Visibility,
        "sees",
        " and full not in self.running",
        "",
    ),
    broken("a truncate voids a chunk that does not see it", WINDOW, "current", "if TRUNCATE_KEY in stale", "if False"),
    broken("read again where too much changed", WINDOW, "current", "self._beyond is not None", "False"),
    broken("forget only what all see", WINDOW, "forget_seen", "if not self._seen(changed.xid)", "if False"),
    broken(
        "forget nothing that a chunk at hand does not see",
        MERGING,
        "take",
        ", *(chunk.sees for chunk in self._chunks)",
        "",
    ),
    broken("remember what is published", MERGING, "remember", "if self._backfills", "if False"),
    broken("merge no chunk that the log has not passed", MERGING, "due", "chunk.after_lsn <= reached", "True"),
    broken(
        "merge no chunk where views stand already",
        MERGING,
        "due",
        "backfill.initial or boundary < reached",
        "True",
    ),
    broken("merge in key order", MERGING, "due", "chunk.begin == backfill.done", "True"),
    broken(
        "a shape that the log brought since is newer",
        MERGING,
        "is_older_shape",
        "source is not None and not chunk.sees.sees(source)",
        "False",
    ),
    broken(
        "a chunk stands before what commits where it was merged",
        MACHINE,
        "_merge_chunk",
        "self._batch.reached - 1",
        "self._batch.reached",
    ),
    broken("no boundary before the first reading is done", MACHINE, "_whole", "self._merging.is_initial", "False"),
    broken("write down how far tables are", MACHINE, "_next", "backfills=self._merging.backfills", "backfills=()"),
    broken(
        "go on where a killed capture was",
        capturing,
        "decide_start",
        " and not progress.backfills",
        "",
    ),
    broken(
        "wait for what is open before the first chunk",
        readers.SimulatedReaders,
        "_is_settled",
        "sees.xmin > table.settles_at",
        "True",
    ),
)
