"""What many small commits leave behind, cleared away now and then without Spark.

In: a table and its versions around a write. Out: fewer small files, none replaced over an hour ago, a short log. Keeps
true: the rows and their position stay as they are, and a failure here never fails the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cdc.log import get

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = get(__name__)

EVERY_COMMITS: Final = 100
FILES_MAX: Final = 40
FILE_BYTES: Final = 32 << 20
KEPT_HOURS: Final = 1
"""As the table's own properties say (sinks.delta.commit): a reader of an older version has that long."""


def keep_up(path: str, storage_options: Mapping[str, str], before: int, after: int) -> None:
    """Clear up when the versions have passed a multiple of EVERY_COMMITS."""
    if before // EVERY_COMMITS == after // EVERY_COMMITS:
        return
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        done = _clear(DeltaTable(path, storage_options=dict(storage_options) or None))
    except (DeltaError, OSError) as error:
        _log.warning("table not tidied", path=path, error=type(error).__name__)
    else:
        _log.debug("table tidied", path=path, **done)


def _clear(table: DeltaTable) -> dict[str, Any]:
    compacted = 0
    if len(table.file_uris()) > FILES_MAX:
        compacted = table.optimize.compact(target_size=FILE_BYTES)["numFilesRemoved"]
    # `full` also finds what a killed process wrote and never committed.
    removed = table.vacuum(retention_hours=KEPT_HOURS, enforce_retention_duration=False, dry_run=False, full=True)
    table.cleanup_metadata()
    return {"compacted": compacted, "removed": len(removed)}
