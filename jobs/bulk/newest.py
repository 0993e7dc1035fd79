"""The newest change of each key, out of parsed records as they come.

In: parsed records, positions [floor, ceiling). Out: one row per key that changed, or is there in the end. Keeps true:
only whole transactions of the range count, in commit order per key; what is held is bounded, however many records there
are, or the range is Unusual as soon as that shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.bulk.parse import GONE, KEY, LSN, OFFSET, ORDINAL, PARTITION, TRUNCATES
from jobs.native_rows import Unusual

HELD_BYTES_MAX: Final = 192 << 20
FOLD_BYTES: Final = 32 << 20
"""After so much more what was found is gone through, and after as much again as is held by then."""
NONE: Final[Mapping[int, tuple[int, int]]] = {}
_AT: Final = "at"


class Newest:
    """Of one range, of at most `rows_max` keys; `add` in the order of reading."""

    def __init__(
        self, lsns: tuple[int, int], truncates: Mapping[int, tuple[int, int]] = NONE, rows_max: int | None = None
    ) -> None:
        self._lsns = lsns
        self._rows_max = rows_max
        self._chunks: list[pa.Table] = []
        self._bytes = 0
        self._folded_bytes = 0
        self._truncates = dict(truncates)

    def counted(self, records: pa.Table) -> pa.Table:
        """Those that count; truncates are remembered."""
        floor, ceiling = self._lsns
        lsn = _values(records, LSN)
        return self._without_truncates(_where(records, (lsn >= floor) & (lsn < ceiling)))

    def add(self, records: pa.Table) -> None:
        """Some more."""
        self.take(self.counted(records))

    def take(self, rows: pa.Table) -> None:
        """Some more, of those that count."""
        self._chunks.append(rows)
        self._bytes += rows.nbytes
        if self._bytes - self._folded_bytes > max(FOLD_BYTES, self._folded_bytes):
            self._fold()

    def rows(self) -> pa.Table:
        """The newest of all, without those that are deleted."""
        found = self.changes()
        return _where(found, ~_values(found, GONE))

    def changes(self) -> pa.Table:
        """The newest of all, those that are `GONE` among them."""
        self._fold()
        (found,) = self._chunks
        self._chunks = []
        return found

    def of_a_share(self) -> Newest:
        """What finds the newest among a share of those that count, with the same truncates."""
        return Newest(self._lsns, self._truncates)

    @property
    def truncated_at(self) -> tuple[int, int] | None:
        """The position of the last truncate so far."""
        return max(self._truncates.values(), default=None)

    def _fold(self) -> None:
        if not self._chunks:
            raise Unusual("empty")
        self._chunks = [_newest(self._not_voided(pa.concat_tables(self._chunks)))]
        self._bytes = self._folded_bytes = self._chunks[0].nbytes
        if self._bytes > HELD_BYTES_MAX:
            raise Unusual("size")
        if self._rows_max is not None and self._chunks[0].num_rows > self._rows_max:
            raise Unusual("rows")

    def _without_truncates(self, rows: pa.Table) -> pa.Table:
        truncates = _values(rows, TRUNCATES)
        for row in _where(rows.select([PARTITION, LSN, ORDINAL]), truncates).to_pylist():
            position = row[LSN], row[ORDINAL]
            self._truncates[row[PARTITION]] = max(self._truncates.get(row[PARTITION], (0, 0)), position)
        return _where(rows, ~truncates)

    def _not_voided(self, rows: pa.Table) -> pa.Table:
        """Without what stands before its partition's truncate."""
        for partition, (lsn, ordinal) in self._truncates.items():
            lsns = _values(rows, LSN)
            before = (lsns < lsn) | ((lsns == lsn) & (_values(rows, ORDINAL) < ordinal))
            rows = _where(rows, ~(before & (_values(rows, PARTITION) == partition)))
        return rows


def _newest(rows: pa.Table) -> pa.Table:
    if not _in_order(rows):
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in (LSN, ORDINAL, OFFSET)]))
    at = rows.select([KEY, PARTITION]).append_column(_AT, pa.array(np.arange(rows.num_rows)))
    last = at.group_by([KEY, PARTITION]).aggregate([(_AT, "max")]).column(f"{_AT}_max")
    # In the order of reading still, so that more can be added.
    return rows.take(pa.array(np.sort(last.to_numpy())))


def _in_order(rows: pa.Table) -> bool:
    """Whether each partition's rows came in commit order, as they do unless the broker has broken its word."""
    partitions, lsns, ordinals = (_values(rows, name) for name in (PARTITION, LSN, ORDINAL))
    for partition in np.unique(partitions):
        of_it = partitions == partition
        later = np.diff(lsns[of_it])
        if np.any(later < 0) or np.any(np.diff(ordinals[of_it])[later == 0] < 0):
            return False
    return True


def _values(rows: pa.Table, name: str) -> Any:
    return rows.column(name).to_numpy()


def _where(rows: pa.Table, mask: Any) -> pa.Table:
    return rows if mask.all() else rows.filter(pa.array(mask))
