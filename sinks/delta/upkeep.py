"""What many small commits leave behind, cleared away now and then without Spark, between two batches.

In: a table. Out: fewer and sorted files, none replaced over an hour ago, a short log with a checkpoint. Keeps true: the
rows, their position and turn stay as they are, older versions can be read for an hour, a failure here fails nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cdc.log import get
from sinks.delta.entries import Unreadable
from sinks.delta.layout import DataFile, Layout, Limits, Step, decide, layout_of
from sinks.delta.log import size_of
from sinks.delta.opened import is_local
from sinks.delta.purge import purge, sweep
from sinks.delta.vectors import is_enabled

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = get(__name__)

DUE_COMMITS: Final = 100
"""After so many commits the table is looked at."""

KEPT_HOURS: Final = 1
"""As the table's own properties say (sinks.delta.commit): a reader of an older version has that long."""
LIMITS: Final = Limits()
_OURS: Final = ("OPTIMIZE", "VACUUM END")


@dataclass(frozen=True, slots=True)
class Figures:
    """A table in numbers; `tidied_s` is how long ago it was tidied, None if that is longer ago than the log tells."""

    rows: int
    bytes: int
    files: int
    tidied_s: float | None


class Upkeep:
    """One table's, as this process knows it."""

    def __init__(
        self, path: str, storage_options: Mapping[str, str], key: Sequence[str], limits: Limits | None = None
    ) -> None:
        self._path = path
        self._options = dict(storage_options) or None
        self._key = tuple(key)
        self._limits = limits or LIMITS
        self._looked_at: int | None = None
        self._sorted_bytes: int | None = None

    def be_due(self) -> None:
        """A great deal was replaced: tidy after this batch."""
        self._looked_at = -DUE_COMMITS

    def keep_up(self, version: int) -> bool:
        """Tidy the table, if it is due at this version; whether it has another version now."""
        if self._looked_at is None:
            self._looked_at = version - version % DUE_COMMITS
        if version - self._looked_at < DUE_COMMITS:
            return False
        from deltalake.exceptions import DeltaError

        began_s = time.monotonic()
        self._looked_at = version
        try:
            table = self._table()
            done = self._tidy(table)
            self._looked_at = table.version()
        except (DeltaError, OSError, Unreadable) as error:
            _log.warning("table not tidied", path=self._path, error=type(error).__name__)
            return True
        _log.info("table tidied", path=self._path, seconds=round(time.monotonic() - began_s, 3), **done)
        return self._looked_at != version

    def _tidy(self, table: DeltaTable) -> dict[str, Any]:
        is_marked = is_local(self._path) and is_enabled(table)
        purged = purge(table, self._path) if is_marked else 0
        layout = self._layout(table)
        step = decide(layout, self._sorted_bytes, self._limits)
        match step:
            case Step.SORT:
                table.optimize.z_order(list(self._key[:1]), target_size=self._limits.sorted_file_bytes)
                self._sorted_bytes = layout.bytes
            case Step.COMPACT:
                table.optimize.compact(target_size=self._limits.file_bytes)
        removed = self._removed(table, is_marked=is_marked)
        table.create_checkpoint()
        table.cleanup_metadata()
        return {"step": step.value if step else None, "files": layout.files, "purged": purged, "removed": removed}

    def _removed(self, table: DeltaTable, *, is_marked: bool) -> int:
        """Files that are not needed any more, and those that a killed process wrote and never committed."""
        # delta-rs takes deletion vectors for such files.
        if is_marked:
            return sweep(table, self._path, KEPT_HOURS)
        return len(table.vacuum(retention_hours=KEPT_HOURS, enforce_retention_duration=False, dry_run=False, full=True))

    def _layout(self, table: DeltaTable) -> Layout:
        import pyarrow as pa

        found = pa.table(table.get_add_actions(flatten=True))
        sizes = found.column("size_bytes").to_pylist()
        nothing = [None] * len(sizes)
        bounds = (
            found.column(name).to_pylist() if name in found.column_names else nothing
            for name in (f"{end}.{column}" for column in self._key[:1] or ("",) for end in ("min", "max"))
        )
        files = [DataFile(size or 0, low, high) for size, low, high in zip(sizes, *bounds, strict=True)]
        return layout_of(files, self._limits)

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self._path, storage_options=self._options)


def figures(path: str, storage_options: Mapping[str, str]) -> Figures | None:
    """A table in numbers, for people; None without one."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(path, storage_options=dict(storage_options) or None)
    except TableNotFoundError:
        return None
    size = size_of(table)
    tidied = (commit["timestamp"] for commit in table.history(2 * DUE_COMMITS) if commit.get("operation") in _OURS)
    last_ms = next(tidied, None)
    since_s = None if last_ms is None else max(0.0, time.time() - last_ms / 1000)
    return Figures(size.rows, size.bytes, size.files, since_s)
