"""What marks leave behind, cleared away: files with many rows that are gone, and files that no log names any more.

In: an open table on a local disk. Out: the same rows in files without them, in one commit; fewer files in the folder.
Keeps true: the rows stay as they are; a file that a version of the last hour has is left alone, and so is one that was
written within it, by whomever.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sinks.delta.entries import DRAFTS, LOG, about, live_files, make_version, removal, spoken_of
from sinks.delta.files import live_rows, written_file
from sinks.delta.vectors import PREFIX, dead_rows, file_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

SHARE_MAX: Final = 0.25
"""Of a file's rows; from there on each reader reads too many in vain."""
BYTES_MAX: Final = 128 << 20
"""At a time: apply waits meanwhile."""
_PATTERNS: Final = ("*.parquet", f"{PREFIX}*.bin", f"{LOG}/{DRAFTS}")


def purge(table: DeltaTable, folder: str) -> int:
    """Write the files with the most dead rows anew; how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files, dead = live_files(folder, table.version()), dead_rows(table)
    schema: pa.Schema = pa.schema(table.schema().to_arrow())  # type: ignore[arg-type]  # by Arrow's C interface
    actions, size = [], 0
    for path, rows in dead.items():
        # Decided by the footer alone: most marked files stay as they are.
        count = pq.read_metadata(Path(folder, path)).num_rows
        if size + files[path]["size"] > BYTES_MAX or len(rows) < SHARE_MAX * count:
            continue
        size += files[path]["size"]
        live = live_rows(folder, path, rows, schema)
        actions.append(removal(files[path], data_change=False))
        actions.append({"add": written_file(folder, live, data_change=False)})
    if actions:
        make_version(folder, table.version() + 1, [about("OPTIMIZE"), *actions])
        table.update_incremental()
    return len(actions) // 2


def sweep(table: DeltaTable, folder: str, hours: float) -> int:
    """Remove files that nobody can need; how many."""
    named = set()
    for entry in (*live_files(folder, table.version()).values(), *spoken_of(folder)):
        vector = entry.get("deletionVector")
        named |= {entry["path"], *([file_of(vector)] if vector else ())}
    oldest_s = time.time() - hours * 3600
    gone = 0
    for path in (path for pattern in _PATTERNS for path in Path(folder).glob(pattern)):
        if path.name not in named and path.stat().st_mtime < oldest_s:
            path.unlink()
            gone += 1
    return gone
