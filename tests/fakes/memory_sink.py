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
        raise NotImplementedError

    def rows(self) -> Iterator[tuple[Any, ...]]:
        if self.error is not None:
            raise self.error
        yield from list(self.stored)
        self.while_read()
