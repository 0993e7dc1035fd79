"""The generation of a view in OpenSearch that is loaded beside the live one: the same steps, seen by no reader.

In: a connection. Out: its standing, moves of it. Keeps true: where it stands is known to this process alone, so whoever
is killed leaves an index that nobody goes on with, and that the next load removes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sinks.protocol import Position
from sinks.search.generations import Generations, Stored
from sinks.search.server import SearchConnection
from sinks.standing import Standing


class LoadingGenerations:
    """What SearchSink needs of sinks.search.generations.Generations, without an alias and without a document."""

    def __init__(self, live: Generations) -> None:
        self._live = live
        self._loaded: Stored | None = None

    @property
    def declaration(self) -> str:
        """The live one's."""
        return self._live.declaration

    def write_alias(self, generation: int) -> str:
        """Of its index alone."""
        return self._live.write_alias(generation)

    def stored(self, _: SearchConnection) -> Stored | None:
        """What this process has loaded."""
        return self._loaded

    def move(self, _: SearchConnection, stored: Stored, position: Position) -> Stored:
        """Know that it stands there."""
        self._loaded = replace(stored, standing=stored.standing.moved(position))
        return self._loaded

    def refresh(self, ask: SearchConnection, index: str) -> None:
        """Show all writes to searches at once."""
        self._live.refresh(ask, index)

    def begin(self, ask: SearchConnection, body: dict[str, Any]) -> int:
        """Make the index."""
        return self._live.begin(ask, body)

    def switch(self, ask: SearchConnection, standing: Standing, _: Stored | None) -> Stored:
        """It is loaded."""
        index = self._live.index(standing.generation)
        self._live.refresh(ask, index)
        self._loaded = Stored(standing, index, "", "")
        return self._loaded

    def leftovers(self, _: SearchConnection) -> list[str]:
        """The live sink sees to them."""
        return []

    def former(self, _: SearchConnection, __: Stored) -> list[str]:
        """No reader has seen one."""
        return []

    def drop(self, ask: SearchConnection, indexes: list[str]) -> None:
        """Delete these indexes."""
        self._live.drop(ask, indexes)
