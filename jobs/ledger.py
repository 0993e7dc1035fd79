"""The ledger: a small Delta table that names, for one LSN, the version of every Delta table that shows that LSN.

In: the rows of a batch that is done. Out: the newest such rows, whole or not at all. Keeps true: all rows have one LSN,
but for those of tables that stopped alone, which stand behind; a writer overtaken by another one fails instead of
overwriting; old commits and files go after ten minutes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from cdc.errors import CdcError, OperatorError, TransientError
from sinks.position import parse_unfit, unfit_fields
from sinks.protocol import Unfit

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

FOLDER: Final = "_ledger"
KEPT_MINUTES: Final = 10
CHECKPOINT_EVERY: Final = 50
VACUUM_EVERY: Final = 200
READ_ATTEMPTS: Final = 3
VERSIONS_MAX: Final = 1 << 16
"""More than there are batches in KEPT_MINUTES."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One Delta table: `name` is its folder, and `offsets` say where in its topics this state ends."""

    name: str
    version: int
    generation: int
    lsn: int
    source_ts_us: int
    offsets: Mapping[str, tuple[int, ...]]
    unfit: tuple[Unfit, ...] = ()
    """The rows that it lacks."""
    refreshed: str = ""
    """How a query was refreshed last (jobs.refresh.outcome), as JSON."""
    sql: str = ""
    """What Postgres was to be asked for these rows, when they were written."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """Every Delta table of the pipeline at one LSN; rows with an older one are of tables that stopped alone."""

    lsn: int
    source_ts_us: int
    rows: Mapping[str, LedgerRow]


class Ledger:
    """The ledger under a pipeline's folder. Reading looks anew each time; writing goes on from what was read."""

    def __init__(
        self, root: str, storage_options: Mapping[str, str] | None = None, *, kept_minutes: int = KEPT_MINUTES
    ) -> None:
        self._path = f"{root.rstrip('/')}/{FOLDER}"
        self._options = dict(storage_options or {})
        self._kept = f"interval {kept_minutes} minutes"
        self._table: DeltaTable | None = None

    def read(self) -> LedgerState | None:
        """What the ledger says now; None before the first batch."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        for attempt in range(READ_ATTEMPTS):
            try:
                self._table = self._open()
                return _state(_load(self._table))
            except TableNotFoundError:
                self._table = None
                return None
            except (DeltaError, OSError) as error:
                # A commit or file that is just being cleaned up: the next look sees newer ones.
                if attempt == READ_ATTEMPTS - 1:
                    raise _unavailable("read", error) from error
        raise AssertionError("unreachable")

    def versions(self) -> tuple[int, int]:
        """The oldest version that may still be there, and the newest."""
        newest = self._open().version()
        return max(0, newest - VERSIONS_MAX), newest

    def read_version(self, version: int) -> LedgerState | None:
        """What it said then; None when that is cleared away."""
        from deltalake import DeltaTable

        try:
            return _state(_load(DeltaTable(self._path, version=version, storage_options=self._options or None)))
        except Exception:  # noqa: BLE001 - delta-rs has no class for a file that is gone
            return None

    def write(self, rows: Sequence[LedgerRow]) -> None:
        """Make these rows the ledger, in one commit."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        assert len({row.name for row in rows}) == len(rows), "a ledger names each table once"
        try:
            self._overwrite(_arrow(rows))
        except CommitFailedError as error:
            self._table = None
            raise TransientError(
                "another process wrote the ledger at the same time",
                "one apply process runs a pipeline: stop the other one, this one tries again",
                code="LEDGER_CONFLICT",
            ) from error
        except (DeltaError, OSError) as error:
            self._table = None
            raise _unavailable("written", error) from error

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self._path, storage_options=self._options or None)

    def _overwrite(self, rows: pa.Table) -> None:
        if self._table is None:
            self._table = self._open_or_create(rows)
        from deltalake import CommitProperties, write_deltalake

        # On the very version that was read or written last: a retry would look away from who came between.
        once = CommitProperties(max_commit_retries=0)
        # A ledger of an earlier version of Afterimage has fewer columns.
        known = {field.name for field in self._table.schema().fields}
        schema_mode: Literal["overwrite"] | None = None if known >= set(rows.column_names) else "overwrite"
        write_deltalake(self._table, rows, mode="overwrite", schema_mode=schema_mode, commit_properties=once)
        if self._table.version() % VACUUM_EVERY == 0:
            self._table.vacuum(dry_run=False, full=True, enforce_retention_duration=False)

    def _open_or_create(self, rows: pa.Table) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return self._open()
        except TableNotFoundError:
            if "://" not in self._path:
                Path(self._path).mkdir(parents=True, exist_ok=True)
            return DeltaTable.create(
                self._path,
                rows.schema,
                configuration={
                    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
                    "delta.logRetentionDuration": self._kept,
                    "delta.deletedFileRetentionDuration": self._kept,
                },
                storage_options=self._options or None,
            )


def _unavailable(done: str, error: Exception) -> CdcError:
    return TransientError(
        f"the ledger cannot be {done}: {str(error).splitlines()[0]}",
        "check that delta.path exists, that it may be written, and that the disk is not full",
        code="DELTA_UNAVAILABLE",
    )


def _load(table: DeltaTable) -> list[dict[str, Any]]:
    from deltalake import QueryBuilder

    found = QueryBuilder().register("ledger", table).execute("SELECT * FROM ledger").read_all()
    columns = {name: found.column(name).to_pylist() for name in found.schema.names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _state(loaded: list[dict[str, Any]]) -> LedgerState | None:
    # A table that was created but never written: killed before the first batch's commit.
    if not loaded:
        return None
    rows = {row["name"]: _row(row) for row in loaded}
    newest = max(row.lsn for row in rows.values())
    moments = {(row.lsn, row.source_ts_us) for row in rows.values() if row.lsn == newest}
    if len(moments) != 1:
        raise OperatorError(
            "the ledger names several times for one position; it was written by another program",
            "remove its folder: the next batch of `afterimage apply` writes it anew",
            code="LEDGER_DAMAGED",
        )
    lsn, source_ts_us = moments.pop()
    return LedgerState(lsn, source_ts_us, rows)


def _row(row: dict[str, Any]) -> LedgerRow:
    unfit = parse_unfit(json.loads(row.get("unfit") or "[]"))
    texts = {name: row.get(name) or "" for name in ("refreshed", "sql")}
    # A later version of Afterimage may say more.
    known = {each.name: row[each.name] for each in fields(LedgerRow) if each.name in row}
    return LedgerRow(**{**known, **texts, "offsets": _offsets(row["offsets"]), "unfit": unfit})


def _offsets(text: str) -> dict[str, tuple[int, ...]]:
    return {topic: tuple(offsets) for topic, offsets in json.loads(text).items()}


def _arrow(rows: Sequence[LedgerRow]) -> pa.Table:
    import pyarrow as pa

    texts = [json.dumps({topic: list(offsets) for topic, offsets in row.offsets.items()}) for row in rows]
    return pa.table(
        {
            "name": pa.array([row.name for row in rows], pa.string()),
            "version": pa.array([row.version for row in rows], pa.int64()),
            "generation": pa.array([row.generation for row in rows], pa.int64()),
            "lsn": pa.array([row.lsn for row in rows], pa.int64()),
            "source_ts_us": pa.array([row.source_ts_us for row in rows], pa.int64()),
            "offsets": pa.array(texts, pa.string()),
            "unfit": pa.array([json.dumps(unfit_fields(row.unfit)) for row in rows], pa.string()),
            "refreshed": pa.array([row.refreshed for row in rows], pa.string()),
            "sql": pa.array([row.sql for row in rows], pa.string()),
        }
    )
