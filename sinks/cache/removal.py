"""A view that nothing declares any more, removed from the cache.

In: a pipeline and a view's name. Out: whether anything of it was there. Keeps true: readers lose the pointer first, and
what says how the rest is found goes last, so whoever is killed in between may begin again.
"""

from __future__ import annotations

import json
from itertools import chain, islice

import redis

from cdc.settings import Settings
from sinks.cache.generations import GENERATION, SCAN_COUNT
from sinks.cache.pattern import DEFAULT_PATTERN, parse_pattern
from sinks.cache.server import CacheServer


def remove(settings: Settings, view: str) -> bool:
    """Remove pointer, entries, lists and position."""
    server = CacheServer(settings.cache.url, settings.cache.secret(), settings.cache.ca_file)
    # Of its own names the pattern is the same whatever the header said.
    pattern = parse_pattern(DEFAULT_PATTERN, settings.pipeline, view, ())
    with server.client() as client:
        was_there = bool(client.unlink(pattern.generation_key))
        kept = client.get(pattern.globs_key)
        globs = json.loads(kept) if kept else pattern.globs(GENERATION)
        for generation in map(int, client.hkeys(pattern.generations_key)):
            named = [glob.replace(GENERATION, str(generation)) for glob in globs]
            was_there |= _unlink(client, named)
        own = (pattern.position_key, pattern.generations_key, pattern.globs_key)
        return bool(client.unlink(*own)) or was_there


def _unlink(client: redis.Redis, globs: list[str]) -> bool:
    found = chain.from_iterable(client.scan_iter(match=glob, count=SCAN_COUNT) for glob in globs)
    was_there = False
    while keys := list(islice(found, SCAN_COUNT)):
        was_there = True
        client.unlink(*keys)
    return was_there
