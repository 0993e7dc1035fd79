"""Rows of a batch as entries: the key's texts, the version, and the values as text or JSON.

In: Arrow batches of a view's columns and the control columns, on an executor. Out: one Entry a row. Keeps true: each
entry carries the place in Kafka that it came from, so that a refused row can be found again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sinks.protocol import AT, DELETE, LSN, OP, Rejected
from sinks.values import Texts, json_texts, plain_texts


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: `values` are the view's columns in order, as JSON or as plain texts."""

    is_delete: bool
    key: tuple[str, ...]
    values: tuple[str | None, ...]
    lsn: int
    at: str

    def rejected(self, reason: str) -> Rejected:
        """This row as one that the store refused."""
        return Rejected(self.at, self.lsn, reason)


@dataclass(frozen=True, slots=True)
class RowShape:
    """Which columns make the key, which are kept, and in which form."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    as_json: bool

    def entries(self, batches: Iterable[Any]) -> Iterator[Entry]:
        """The rows of these batches, one after the other."""
        for batch in batches:
            yield from self._of_batch(batch)

    def _of_batch(self, batch: Any) -> Iterator[Entry]:
        keys = zip(*(plain_texts(batch.column(name)) for name in self.key), strict=True)
        render = json_texts if self.as_json else plain_texts
        columns: list[Texts] = [list(render(batch.column(name))) for name in self.columns]
        control = zip(*(batch.column(name).to_pylist() for name in (OP, LSN, AT)), strict=True)
        for key, values, (op, lsn, at) in zip(keys, zip(*columns, strict=True), control, strict=True):
            assert None not in key, "a key column is NULL"
            yield Entry(op == DELETE, key, values, lsn, str(at))
