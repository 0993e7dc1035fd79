"""A batch written beside what is there: its rows in a new file, those that they replace marked as deleted.

In: the batch as an Arrow table, a Commit. Out: one Delta commit with its stamp and turn, or False where the table or
its key is not fit for it, and nothing is done. Keeps true: of each key one row is left; any other commit on the version
that was looked at is an error; no file is rewritten but small ones of earlier batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

from sinks.delta.commit import ROWS_PER_FILE_MAX, Commit
from sinks.delta.entries import Entry, removal
from sinks.delta.files import live_rows, written_file
from sinks.delta.having import PLACE, rows_having
from sinks.delta.own_commit import commit_files, own_turn
from sinks.delta.vectors import dead_rows, enable, widened, write_vectors
from sinks.protocol import OP, UPSERT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap

TABLE_BYTES_MIN: Final = 4 << 20
"""A smaller table is rewritten as fast."""
TABLE_BYTES_MAX: Final = 4 << 30
"""The key columns of the whole table are read for each batch."""
SMALL_FILE_BYTES: Final = 1 << 20
SMALL_FILES_MAX: Final = 8
"""So many small files become one with the next batch: each costs every reader an open."""


def mark_and_append(rows: pa.Table, commit: Commit, key: Sequence[str], options: Mapping[str, str]) -> bool:
    """Whether it was done so; `rows` has the table's columns and OP."""
    if not all(_is_exact(rows.schema.field(name).type) for name in key):
        return False
    with own_turn(commit, {*rows.column_names} - {OP}, options) as opened:
        if opened is None:
            return False
        table, files = opened
        enable(table)
        commit_files(table, commit, "MERGE", _actions(commit.path, dead_rows(table), files, rows, key))
    return True


def _actions(
    folder: str, dead: Mapping[str, BitMap], files: Mapping[str, Entry], rows: pa.Table, key: Sequence[str]
) -> Iterator[Entry]:
    """What becomes of the files that are there, and the new one."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyroaring import BitMap

    small = [path for path, entry in files.items() if entry["size"] < SMALL_FILE_BYTES]
    merged = small if len(small) >= SMALL_FILES_MAX else []
    found, nothing = _positions(folder, files, rows, key), BitMap()
    left = {path: dead.get(path, nothing) | found.get(path, nothing) for path in (*found, *merged)}
    empty = [path for path in found if path not in merged and len(left[path]) == _count(files[path])]
    vectors = {path: left[path] for path in found if path not in (*merged, *empty) and left[path] != dead.get(path)}
    is_upsert = pc.equal(rows.column(OP), pa.scalar(UPSERT))
    # Where none has gone, a million rows are not copied.
    upserts = (rows if pc.all(is_upsert).as_py() else rows.filter(is_upsert)).drop_columns([OP])
    kept = [live_rows(folder, path, left[path], upserts.schema) for path in merged]
    for path in (*merged, *empty):
        yield removal(files[path])
    for path, descriptor in write_vectors(folder, vectors).items():
        yield removal(files[path])
        marked = {"deletionVector": descriptor, "dataChange": True, "stats": widened(files[path].get("stats"))}
        yield {"add": files[path] | marked}
    written = pa.concat_tables([*kept, upserts])
    if written.num_rows > ROWS_PER_FILE_MAX:
        # Neighbouring keys in one file, so that later batches find theirs in few.
        written = written.sort_by([(name, "ascending") for name in key])
    for first in range(0, written.num_rows, ROWS_PER_FILE_MAX):
        yield {"add": written_file(folder, written.slice(first, ROWS_PER_FILE_MAX))}


def _positions(folder: str, files: Mapping[str, Entry], rows: pa.Table, key: Sequence[str]) -> dict[str, BitMap]:
    """Where the batch's keys stand in the files, marked as deleted or not."""
    from pyroaring import BitMap

    wanted = rows.select(list(key))
    ordered = _ordered(wanted.column(0))
    likely = [path for path, entry in files.items() if ordered is None or _may_hold(entry, ordered, key[0])]
    columns = key if len(key) > 1 else ()
    among = {name: wanted.column(name) for name in key}
    found = rows_having(folder, likely, rows.schema, columns, among)
    whole = set(_tuples(wanted, columns)) if columns else None
    return {path: BitMap(_places(there, columns, whole)) for path, there in found}


def _places(there: pa.Table, columns: Sequence[str], whole: Set[tuple[Any, ...]] | None) -> Any:
    """Of rows that have some key's value in each column, those that have all of one key."""
    places = there.column(PLACE).to_numpy()
    return places if whole is None else places[[each in whole for each in _tuples(there, columns)]]


def _tuples(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in columns), strict=True)


def _ordered(wanted: Any) -> Any | None:
    """The wanted values in order, where files say between which theirs lie."""
    import numpy as np
    import pyarrow as pa

    return np.sort(wanted.to_numpy()) if pa.types.is_integer(wanted.type) and not wanted.null_count else None


def _may_hold(entry: Entry, ordered: Any, name: str) -> bool:
    """By bounds of whole numbers, which every writer writes exactly."""
    import numpy as np

    stats = json.loads(entry.get("stats") or "{}")
    low, high = (stats.get(end, {}).get(name) for end in ("minValues", "maxValues"))
    if not isinstance(low, int) or not isinstance(high, int):
        return True
    return bool(np.searchsorted(ordered, low) < np.searchsorted(ordered, high, side="right"))


def _count(entry: Entry) -> int | None:
    count: int | None = json.loads(entry.get("stats") or "{}").get("numRecords")
    return count


def _is_exact(kind: Any) -> bool:
    """Whether equal values of the type are alike in every writer: not 0 and -0."""
    import pyarrow as pa

    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_dictionary(kind))
