"""A sink in memory, as far as a proof needs one: rows by hand, a position, and what may go wrong while it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinks.protocol import Position, Written


@dataclass
class MemorySink:
    stored: list[tuple[Any, ...]] = field(default_factory=list)
    lsn: int | None = None
    name: str = "delta"
    while_read: Callable[[], None] = lambda: None
    error: Exception | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)

    def position(self) -> Position | None:
        return None if self.lsn is None else Position(self.lsn, 0, {})

    def write(self, changes: Any, position: Position) -> Written:
        raise NotImplementedError

    def replace(self, rows: Any, position: Position) -> Written:
        self.stored = list(rows)
        self.lsn = position.lsn
        return Written(upserts=len(self.stored))

    def advance(self, position: Position) -> None:
        self.lsn = position.lsn

    def mend(self, changes: Any, position: Position) -> Written:
        raise NotImplementedError

    def types(self) -> Mapping[str, str]:
        return self.kinds

    def rows(self) -> Iterator[tuple[Any, ...]]:
        if self.error is not None:
            raise self.error
        yield from list(self.stored)
        self.while_read()

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        at = [list(self.kinds).index(name) for name in keys.column_names]
        wanted = {tuple(row.values()) for row in keys.to_pylist()}
        yield from [row for row in self.stored if tuple(row[place] for place in at) in wanted]
        self.while_read()
