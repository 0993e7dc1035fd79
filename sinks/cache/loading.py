"""The generation of a view in the cache that is loaded beside the live one: the same steps, without the pointer.

In: a client. Out: its standing, moves of it. Keeps true: where it stands is known to this process alone, so whoever is
killed leaves a generation that stays `loading`, and that the next load sweeps away.
"""

from __future__ import annotations

import redis

from sinks.cache.generations import Generations, Stored
from sinks.protocol import Position
from sinks.standing import Standing


class LoadingGenerations:
    """What CacheSink needs of sinks.cache.generations.Generations; no text, since no position is in the store."""

    def __init__(self, live: Generations) -> None:
        self._live = live
        self._loaded: Stored | None = None

    @property
    def declaration(self) -> str:
        """The live one's."""
        return self._live.declaration

    def stored(self, _: redis.Redis) -> Stored | None:
        """What this process has loaded."""
        return self._loaded

    def move(self, _: redis.Redis, stored: Stored, position: Position) -> Stored:
        """Know that it stands there."""
        self._loaded = Stored(stored.standing.moved(position), "")
        return self._loaded

    def begin(self, client: redis.Redis) -> int:
        """A new generation to load."""
        return self._live.begin(client)

    def switch(self, _: redis.Redis, standing: Standing, __: Stored | None) -> Stored:
        """It is loaded."""
        self._loaded = Stored(standing, "")
        return self._loaded

    def sweep(self, _: redis.Redis) -> None:
        """The live sink sees to what was left."""
