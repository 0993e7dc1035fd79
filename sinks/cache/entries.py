"""Entries of the cache written by an executor, and the value forms that they have.

In: a partition's entries. Out: compare-and-set by LSN, one script call a chunk. Keeps true: an older version never
replaces a newer one, a delete leaves a tombstone, and nothing is written to a generation that was dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sinks.cache.pattern import RESERVED_PREFIX, KeyPattern, whole_key
from sinks.cache.server import CacheServer
from sinks.entries import Entry
from sinks.protocol import Rejected
from sinks.standing import lost, overtaken
from sinks.values import json_text, object_template

VERSION: Final = "_lsn"
PARENT: Final = "_parent"
"""In entries that are in a list as well: the end of that list's key."""
CHUNK_KEYS: Final = 500
ARGUMENTS_MAX: Final = 100_000
"""Of one script call; a wide hash takes two for each column."""

_NOT_WRITABLE: Final = -1
_MOVED: Final = -2
WRITE_SCRIPT: Final = Path(__file__).with_name("write.lua").read_text()


@dataclass(frozen=True, slots=True)
class EntryForm:
    """How a row's values are kept: a JSON string, or a hash in which NULL is a field that isn't there.

    `parent` is the column by whose value JSON entries are also kept in lists.
    """

    columns: tuple[str, ...]
    is_hash: bool
    ttl_s: int
    tombstone_ttl_s: int
    parent: str | None = None
    members: str = field(init=False)

    def __post_init__(self) -> None:
        own = f'"{PARENT}":%s,' if self.parent else ""
        object.__setattr__(self, "members", own + object_template(self.columns))

    def list_end(self, values: tuple[str | None, ...]) -> str | None:
        """The end of the key of the list that the row is in; None if it is in none."""
        value = values[self.columns.index(self.parent)] if self.parent else None
        if value is None or value == "null":
            return None
        return quote(str(json.loads(value)) if value.startswith('"') else value, safe="")

    def value(self, version: str, values: tuple[str | None, ...]) -> list[str]:
        """An upsert's value as arguments of the script."""
        if self.is_hash:
            fields = [(name, text) for name, text in zip(self.columns, values, strict=True) if text is not None]
            return [VERSION, version, *(part for pair in fields for part in pair)]
        # The script finds the version at a fixed place, so it comes first.
        own = (json_text(self.list_end(values)),) if self.parent else ()
        return [f'{{"{VERSION}":"{version}",{self.members % (*own, *values)}}}']

    def read(self, stored: Any) -> Mapping[str, Any]:
        """The columns of a stored value, still as texts or JSON values; a column that isn't there is NULL."""
        if self.is_hash:
            return {name.decode(): value.decode() for name, value in stored.items()}
        parsed = json.loads(stored)
        if not isinstance(parsed, dict):
            raise ValueError("not an object")
        return parsed


@dataclass(frozen=True, slots=True)
class EntryWriter:
    """Writes a partition into one generation, which must still stand at `position` if it is the live one.

    Unless it `compares`, a row is written whatever version is there.
    """

    server: CacheServer
    pattern: KeyPattern
    generation: int
    form: EntryForm
    position: str = ""
    compares: bool = True

    def __call__(self, entries: Iterator[Entry]) -> Iterable[Rejected]:
        """Write in chunks; the cache refuses no single row."""
        chunk_keys = max(1, min(CHUNK_KEYS, ARGUMENTS_MAX // (2 * len(self.form.columns) + 6)))
        with self.server.client() as client:
            script = client.register_script(WRITE_SCRIPT)
            while chunk := list(islice(entries, chunk_keys)):
                self._require_written(script(*self._call(chunk)))
        return ()

    def _require_written(self, answer: int) -> None:
        if answer == _NOT_WRITABLE:
            raise lost("the cache", self.pattern.view)
        if answer == _MOVED:
            raise overtaken("the cache", self.pattern.view)

    def _call(self, chunk: list[Entry]) -> tuple[list[str], list[str | int]]:
        form = self.form
        keys = [self.pattern.generations_key, self.pattern.position_key]
        arguments: list[str | int] = [self.generation, self.position, "hash" if form.is_hash else "json"]
        arguments += [form.ttl_s, form.tombstone_ttl_s, "compare" if self.compares else "set"]
        arguments.append(self.pattern.list_prefix(self.generation) if form.parent else "")
        for entry in chunk:
            key = self.pattern.entry_key(self.generation, entry.key)
            keys += [key, f"{RESERVED_PREFIX}gone:{{{key}}}"]
            version = f"{entry.lsn:020d}"
            value = [] if entry.is_delete else form.value(version, entry.values)
            if form.parent:
                end = None if entry.is_delete else form.list_end(entry.values)
                arguments += [
                    whole_key(entry.key),
                    "" if end is None else self.pattern.list_prefix(self.generation) + end,
                ]
            arguments += [version, len(value), *value]
        return keys, arguments
