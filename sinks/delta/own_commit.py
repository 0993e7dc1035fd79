"""A version of a table on a local disk that this process writes itself, word for word.

In: a commit, file entries. Out: the next version, with the stamp and the turn, or FileExistsError where somebody else
has made it. Keeps true: only a table that this process understands whole is written so, and a turn is taken once; the
log is checkpointed as often as other writers do it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sinks.delta.commit import Commit, Mark
from sinks.delta.direct import refusals, taken_turn
from sinks.delta.entries import Entry, Unreadable, about, live_files, make_version
from sinks.delta.opened import is_local, newest

if TYPE_CHECKING:
    from deltalake import DeltaTable

CHECKPOINT_EVERY: Final = 50
ENGINE: Final = "Afterimage"


@contextmanager
def own_turn(
    commit: Commit, columns: Set[str], options: Mapping[str, str]
) -> Iterator[tuple[DeltaTable, Mapping[str, Entry]] | None]:
    """The newest version, for the commit's turn, and its files; None where others have to write the table."""
    if not is_local(commit.path):
        yield None
        return
    with refusals(commit.stamp.view), newest(commit.path, options) as (table, _):
        taken_turn(table, commit)
        # What a batch does not speak of would keep its value in a row that is updated.
        is_whole = {field.name for field in table.schema().fields} == columns
        files = _live_files(commit.path, table.version()) if is_whole else None
        yield None if files is None else (table, files)


def _live_files(folder: str, version: int) -> Mapping[str, Entry] | None:
    try:
        return live_files(folder, version)
    except Unreadable:
        return None


def commit_files(table: DeltaTable, mark: Mark, operation: str, entries: Iterable[Entry]) -> None:
    """Make the version, and know it."""
    told = about(operation, engineInfo=ENGINE, isBlindAppend=False, userMetadata=mark.stamp.to_json())
    turn = {"appId": mark.app_id, "version": mark.turn, "lastUpdated": time.time_ns() // 1_000_000}
    make_version(mark.path, table.version() + 1, [told, {"txn": turn}, *entries])
    table.update_incremental()
    if table.version() % CHECKPOINT_EVERY == 0:
        table.create_checkpoint()
