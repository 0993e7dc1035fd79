"""The generations of a view in the cache: which one readers use, where it stands, which are loading or retired.

In: a client. Out: the standing as stored, moves of it, switches to a loaded generation. Keeps true: pointer and
position change in one script, and only if nobody emptied, switched or moved them in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import redis

from sinks.cache.pattern import KeyPattern
from sinks.protocol import Position
from sinks.standing import Standing, lost, new_generation, parse_standing
from sinks.values import json_text

RETIRED_TTL_S: Final = 60
"""How long the entries of an old generation stay for readers that read the pointer before the switch."""
SCAN_COUNT: Final = 1000

GENERATION: Final = "{generation}"
"""Stands for a number in what is kept of a view's globs."""

_SCRIPTS: Final = Path(__file__)
_MOVE: Final = _SCRIPTS.with_name("move.lua").read_text()
_SWITCH: Final = _SCRIPTS.with_name("switch.lua").read_text()


@dataclass(frozen=True, slots=True)
class Stored:
    """A standing and its very text, to be compared when it is replaced."""

    standing: Standing
    text: str


@dataclass(frozen=True, slots=True)
class Generations:
    """One view's, as it is declared now."""

    pattern: KeyPattern
    declaration: str

    def stored(self, client: redis.Redis) -> Stored | None:
        """The live generation's standing; None when any part of it is missing or another declaration's."""
        pattern = self.pattern
        # In one step: a switch between two of them would look like a loss.
        with client.pipeline(transaction=True) as pipe:
            pipe.mget(pattern.generation_key, pattern.position_key)
            pipe.hgetall(pattern.generations_key)
            (pointer, position), states = pipe.execute()
        generation, text = _text(pointer), _text(position)
        fields = _object(text)
        standing = parse_standing(fields, pattern.view, self.declaration) if fields else None
        if text is None or standing is None or str(standing.generation) != generation:
            return None
        return Stored(standing, text) if states.get(pointer) == b"live" else None

    def move(self, client: redis.Redis, stored: Stored, position: Position) -> Stored:
        """Move the position from what was read to a later one."""
        moved = _as_stored(stored.standing.moved(position))
        keys = (self.pattern.generation_key, self.pattern.position_key)
        if not client.eval(_MOVE, len(keys), *keys, moved.standing.generation, stored.text, moved.text):
            raise lost("the cache", self.pattern.view)
        return moved

    def begin(self, client: redis.Redis) -> int:
        """A new generation to load."""
        generation = new_generation(int(each) for each in client.hkeys(self.pattern.generations_key))
        client.hset(self.pattern.generations_key, str(generation), "loading")
        client.set(self.pattern.globs_key, json_text(self._globs(client)))
        return generation

    def switch(self, client: redis.Redis, standing: Standing, over: Stored | None) -> Stored:
        """Show a loaded generation to readers, at its position, instead of what was read."""
        made = _as_stored(standing)
        keys = (self.pattern.generation_key, self.pattern.generations_key, self.pattern.position_key)
        before = over.text if over else ""
        if not client.eval(_SWITCH, len(keys), *keys, standing.generation, made.text, before):
            raise lost("the cache", self.pattern.view)
        return made

    def sweep(self, client: redis.Redis) -> None:
        """Remove what a killed load left, and let former generations expire."""
        for generation, state in client.hgetall(self.pattern.generations_key).items():
            if state == b"live":
                continue
            if state == b"retired":
                self._each(client, int(generation), lambda pipe, key: pipe.expire(key, RETIRED_TTL_S, lt=True))
            else:
                self._each(client, int(generation), lambda pipe, key: pipe.unlink(key))
            client.hdel(self.pattern.generations_key, generation)

    def _globs(self, client: redis.Redis) -> list[str]:
        """What finds a generation's entries: also one that was written when the view's header had another pattern."""
        kept = client.get(self.pattern.globs_key)
        return list(dict.fromkeys((*self.pattern.globs(GENERATION), *(json.loads(kept) if kept else ()))))

    def _each(self, client: redis.Redis, generation: int, do: Callable[[Any, bytes], Any]) -> None:
        globs = [glob.replace(GENERATION, str(generation)) for glob in self._globs(client)]
        found = chain.from_iterable(client.scan_iter(match=each, count=SCAN_COUNT) for each in globs)
        while keys := list(islice(found, SCAN_COUNT)):
            with client.pipeline(transaction=False) as pipe:
                for key in keys:
                    do(pipe, key)
                pipe.execute()


def _as_stored(standing: Standing) -> Stored:
    return Stored(standing, json_text(standing.fields()))


def _text(raw: bytes | str | None) -> str | None:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text or "null")
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
