"""Lists of a view's entries by the value of a column: a hash for each parent, in step with the entries.

In: the header's option, entries as stored. Out: what lists say of rows, and strays removed. Keeps true: whatever a
list lacks, holds too much or holds otherwise than the entry does shows as a row that is missing, extra or different.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import redis

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from sinks.cache.entries import PARENT, EntryForm
from sinks.cache.pattern import KeyPattern, whole_key
from sinks.entries import Entry
from sinks.spec import SinkOptions, ViewSpec

OPTION: Final = "list"
_AT_ONCE: Final = 500


def once(names: Iterable[bytes]) -> Iterator[bytes]:
    """Each once: SCAN may name a key twice while the table of keys is resized."""
    seen: set[bytes] = set()
    for name in names:
        if name not in seen:
            seen.add(name)
            yield name


def list_column(option: SinkOptions, spec: ViewSpec, *, has_entries: bool) -> str | None:
    """The column by which entries are listed; only of entries that hold their row as JSON, for ever."""
    name = option.options.get(OPTION)
    if name is None:
        return None
    if name not in spec.columns:
        message = f"view {spec.name}: the cache's option list names a column {name} that the view does not have"
        raise ConfigError(message, suggestion(name, spec.columns, what="columns"))
    if not has_entries:
        message = f"view {spec.name}: the cache's option list goes with neither ttl nor value: hash"
        raise ConfigError(message, "remove the other line: a list holds its entries' JSON as long as they live")
    return name


@dataclass(frozen=True, slots=True)
class Lists:
    """One view's."""

    pattern: KeyPattern
    form: EntryForm

    def as_listed(self, client: redis.Redis, generation: int, entries: list[bytes]) -> Iterator[bytes]:
        """The entries; left out if their list lacks them, and beside what it has instead if that differs."""
        listed = [(entry, self._place(generation, entry)) for entry in entries]
        with client.pipeline(transaction=False) as pipe:
            for _, place in listed:
                if place is not None:
                    pipe.hget(*place)
            answers = iter(pipe.execute())
        for entry, place in listed:
            found = entry if place is None else next(answers)
            if found is not None:
                yield from {entry: None, found: None}

    def strays(self, client: redis.Redis, generation: int) -> Iterator[bytes]:
        """What lists hold of rows that are not there, or in another list."""
        for key in self._keys(client, generation):
            fields = client.hscan_iter(key, count=_AT_ONCE)
            while some := list(islice(fields, _AT_ONCE)):
                entries = client.mget([self._entry_key(generation, field.decode()) for field, _ in some])
                for (field, value), entry in zip(some, entries, strict=True):
                    if self._place(generation, entry) != (key.decode(), field.decode()):
                        yield value

    def remove_strays(self, client: redis.Redis, generation: int, entries: Iterable[Entry]) -> None:
        """Take rows that were just written out of every list that is not theirs."""
        theirs = {
            whole_key(entry.key): None if entry.is_delete else self.form.list_end(entry.values) for entry in entries
        }
        prefix = self.pattern.list_prefix(generation)
        for key in self._keys(client, generation) if theirs else ():
            end = key.decode().removeprefix(prefix)
            if strays := [field for field, its_end in theirs.items() if its_end != end]:
                client.hdel(key, *strays)

    def _keys(self, client: redis.Redis, generation: int) -> Iterator[bytes]:
        return once(client.scan_iter(match=self.pattern.list_prefix(generation) + "*", count=_AT_ONCE))

    def _entry_key(self, generation: int, field: str) -> str:
        key = [field] if len(self.pattern.key) == 1 else _texts(field, len(self.pattern.key))
        return self.pattern.entry_key(generation, key)

    def _place(self, generation: int, entry: bytes | str | None) -> tuple[str, str] | None:
        """The list and the field that an entry says it is in."""
        try:
            fields = json.loads(entry or b"", parse_int=str, parse_float=str)
            end = fields[PARENT]
            key = [_text(fields[name]) for name in self.pattern.key]
        except (ValueError, KeyError, TypeError):
            return None
        return None if end is None else (self.pattern.list_prefix(generation) + str(end), whole_key(key))


def _text(value: Any) -> str:
    """A key's value as its entry's key has it."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _texts(field: str, count: int) -> list[str]:
    """The key that a field says; as many empty texts, which are some other row's, if it says none."""
    try:
        key = json.loads(field)
    except ValueError:
        key = None
    return [str(each) for each in key] if isinstance(key, list) and len(key) == count else [""] * count
