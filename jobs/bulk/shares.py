"""Parsed records dealt out by ranges of their keys, on disk: a large range as shares that fit into memory.

In: parsed records in the order of reading, bounds of the first key column. Out: for each range of keys its records, in
that order. Keeps true: all records of a key are in one share; what is held meanwhile is bounded; nothing stays on disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from cdc.errors import TransientError
from jobs.bulk.parse import KEY
from jobs.bulk.sample import leading
from jobs.tables import TableInfo

HELD_BYTES: Final = 48 << 20
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Shares:
    """Add, then iterate once; use as a context manager. The folder is this load's own."""

    def __init__(self, folder: Path, table: TableInfo, bounds: pl.Series) -> None:
        self._folder = folder
        self._table = table
        self._bounds = bounds
        self._held: list[list[pa.Table]] = [[] for _ in range(len(bounds) + 1)]
        self._bytes = 0
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def __enter__(self) -> Shares:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, records: pa.Table) -> None:
        """Some more."""
        if not records.num_rows:
            return
        for share, part in self._parts(records):
            self._held[share].append(part)
        self._bytes += records.nbytes
        if self._bytes > HELD_BYTES:
            self._write()

    def __iter__(self) -> Iterator[list[pa.Table]]:
        """Each share that has any records, by key."""
        self._write()
        self._close()
        for share in range(len(self._held)):
            path = self._path(share)
            if path.exists():
                with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
                    found = [pa.Table.from_batches([batch]) for batch in reader]
                path.unlink()
                yield found

    def _parts(self, records: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        keys = leading(records.column(KEY).to_pylist(), self._table)
        shares = self._bounds.search_sorted(keys, side="right").to_numpy()
        if shares.min() == shares.max():
            yield int(shares[0]), records
            return
        order: Any = np.argsort(shares, kind="stable")
        sorted_records, sorted_shares = records.take(order), shares[order]
        starts = [0, *(np.flatnonzero(np.diff(sorted_shares)) + 1), len(sorted_shares)]
        for start, end in pairwise(starts):
            yield int(sorted_shares[start]), sorted_records.slice(start, end - start)

    def _write(self) -> None:
        try:
            for share, parts in enumerate(self._held):
                if parts:
                    self._writer(share, parts[0].schema).write_table(pa.concat_tables(parts).combine_chunks())
                    parts.clear()
        except OSError as error:
            raise TransientError(
                f"{self._table.qualified}: what is loaded can't be put by ({error.strerror or type(error).__name__})",
                "free some space for the data folder; it is tried again",
                code="DISK_FULL",
            ) from None
        self._bytes = 0

    def _writer(self, share: int, schema: pa.Schema) -> Any:
        if share not in self._writers:
            self._writers[share] = pa.ipc.new_stream(str(self._path(share)), schema, options=_OPTIONS)
        return self._writers[share]

    def _path(self, share: int) -> Path:
        return self._folder / f"{share}.arrows"

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
