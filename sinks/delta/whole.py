"""All rows of a small table replaced by others that this process holds: Spark's overwrite takes most of a second.

In: the rows as an Arrow table, a Commit. Out: one Delta commit with its stamp and turn, or False where the table is not
fit for it, and nothing is done. Keeps true: readers see the former rows or the new ones; any other commit on the
version that was looked at is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.delta.commit import Commit
from sinks.delta.entries import removal
from sinks.delta.files import written_file
from sinks.delta.own_commit import commit_files, own_turn

if TYPE_CHECKING:
    import pyarrow as pa


def overwrite_directly(rows: pa.Table, commit: Commit, options: Mapping[str, str]) -> bool:
    """Whether it was done so; `rows` has the table's columns."""
    with own_turn(commit, {*rows.column_names}, options) as opened:
        if opened is None:
            return False
        table, files = opened
        added = [{"add": written_file(commit.path, rows)}] if rows.num_rows else []
        commit_files(table, commit, "WRITE", [*map(removal, files.values()), *added])
    return True
