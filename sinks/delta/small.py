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
MARKED_ROWS_MAX: Final = 1_200_000
"""Of these, beside rows that are marked: what is there is not read into memory."""
UNKNOWN_ROWS_MAX: Final = 5_000
"""Of rows whose size Spark cannot tell beforehand."""
BYTES_MAX: Final = 32 << 20
KNOWN_BYTES_MAX: Final = 80 << 20
MARKED_BYTES_MAX: Final = 192 << 20


def write_small(
    rows: DataFrame, commit: Commit, key: Sequence[str], storage_options: Mapping[str, str], *, marks: bool
) -> Written | None:
    """The batch; `marks` says whether rows may be marked as deleted."""
    size = answer(commit.path, storage_options, bytes_of)
    merges, marks = size <= direct.TABLE_BYTES_MAX, marks and size <= marked.TABLE_BYTES_MAX
    known = (MARKED_ROWS_MAX, MARKED_BYTES_MAX) if marks else (KNOWN_ROWS_MAX, KNOWN_BYTES_MAX)
    few = few_rows(rows, *known) if merges or marks else None
    if few is None:
        return None
    is_large = not _is_within(few, KNOWN_ROWS_MAX, KNOWN_BYTES_MAX)
    marks = marks and (is_large or size >= marked.TABLE_BYTES_MIN)
    if few.num_rows and not (marks and marked.mark_and_append(few, commit, key, storage_options)):
        if is_large or not merges:
            return None
        direct.merge_directly(few, commit, key, storage_options)
    upserts = count_of(few, UPSERT)
    return Written(upserts, few.num_rows - upserts)


def count_of(rows: Any, op: str) -> int:
    """How many of the rows are such changes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count: int = pc.sum(pc.equal(rows.column(OP), pa.scalar(op))).as_py() or 0
    return count


def few_rows(rows: DataFrame, known_max: int = KNOWN_ROWS_MAX, bytes_max: int = KNOWN_BYTES_MAX) -> Any | None:
    """All of the rows as an Arrow table; None where they are too many."""
    if (known := rows_in(rows)) is not None:
        return known if _is_within(known, known_max, bytes_max) else None
    most = ROWS_MAX if estimated_bytes(rows) <= BYTES_MAX else UNKNOWN_ROWS_MAX
    found = rows.limit(most + 1).toArrow()
    return found if found.num_rows <= most else None


def _is_within(rows: Any, count: int, size: int) -> bool:
    return bool(rows.num_rows <= count and rows.nbytes <= size)
