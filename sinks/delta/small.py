"""A small batch, written in this process: by marks beside what is there, else by files that are written anew.

In: the batch as a frame, a Commit. Out: one Delta commit; None where batch or table are too large, and nothing is done.
Keeps true: the table is the same afterwards, whichever way was taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sinks.arrow_frames import rows_in
from sinks.delta import direct, marked
from sinks.delta.commit import Commit
from sinks.delta.log import bytes_of
from sinks.delta.opened import answer
from sinks.executor import estimated_bytes
from sinks.protocol import OP, UPSERT, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_MAX: Final = 25_000
KNOWN_ROWS_MAX: Final = 250_000
"""Of rows that this process has anyway."""
UNKNOWN_ROWS_MAX: Final = 5_000
"""Of rows whose size Spark cannot tell beforehand."""
BYTES_MAX: Final = 32 << 20
KNOWN_BYTES_MAX: Final = 80 << 20


def write_small(
    rows: DataFrame, commit: Commit, key: Sequence[str], storage_options: Mapping[str, str], *, marks: bool
) -> Written | None:
    """The batch; `marks` says whether rows may be marked as deleted."""
    size = answer(commit.path, storage_options, bytes_of)
    merges, marks = size <= direct.TABLE_BYTES_MAX, marks and marked.fits(size)
    few = few_rows(rows) if merges or marks else None
    if few is None:
        return None
    if few.num_rows and not (marks and marked.mark_and_append(few, commit, key, storage_options)):
        if not merges:
            return None
        direct.merge_directly(few, commit, key, storage_options)
    upserts = few.column(OP).to_pylist().count(UPSERT)
    return Written(upserts, few.num_rows - upserts)


def few_rows(rows: DataFrame) -> Any | None:
    """All of the rows as an Arrow table; None where they are too many."""
    if (known := rows_in(rows)) is not None:
        return known if known.num_rows <= KNOWN_ROWS_MAX and known.nbytes <= KNOWN_BYTES_MAX else None
    most = ROWS_MAX if estimated_bytes(rows) <= BYTES_MAX else UNKNOWN_ROWS_MAX
    found = rows.limit(most + 1).toArrow()
    return found if found.num_rows <= most else None
