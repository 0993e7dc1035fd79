"""A version of a table on a local disk that this process writes itself, word for word.

In: an open table, a commit's Mark, file entries. Out: the next version, with the stamp and the turn, or FileExistsError
where somebody else has made it. Keeps true: the log is checkpointed as often as other writers do it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sinks.delta.commit import Mark
from sinks.delta.entries import Entry, about, make_version

if TYPE_CHECKING:
    from deltalake import DeltaTable

CHECKPOINT_EVERY: Final = 50
ENGINE: Final = "Afterimage"


def commit_files(table: DeltaTable, mark: Mark, operation: str, entries: Iterable[Entry]) -> None:
    """Make the version, and know it."""
    told = about(operation, engineInfo=ENGINE, isBlindAppend=False, userMetadata=mark.stamp.to_json())
    turn = {"appId": mark.app_id, "version": mark.turn, "lastUpdated": time.time_ns() // 1_000_000}
    make_version(mark.path, table.version() + 1, [told, {"txn": turn}, *entries])
    table.update_incremental()
    if table.version() % CHECKPOINT_EVERY == 0:
        table.create_checkpoint()
