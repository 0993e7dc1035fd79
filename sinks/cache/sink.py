"""A view in Valkey or Redis, one entry a row, behind a pointer to the generation that readers use.

In: DataFrames of changes or of all rows. Out: entries, then the position, in the same store. Keeps true: writes are
compared by LSN, pointer and position switch in one step, and a lost store has no position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import redis

from cdc import log
from cdc.errors import ConfigError, RecordError
from cdc.settings import Cache
from sinks.cache.entries import PARENT, VERSION, EntryForm, EntryWriter
from sinks.cache.generations import SCAN_COUNT, Generations, Stored
from sinks.cache.lists import Lists, list_column, once
from sinks.cache.loading import LoadingGenerations
from sinks.cache.pattern import DEFAULT_PATTERN, parse_pattern
from sinks.cache.server import CacheServer
from sinks.entries import RowShape
from sinks.executor import write_partitions
from sinks.options import check_known, declaration, refuse_columns
from sinks.protocol import Position, Sink, Written
from sinks.spec import SinkOptions, ViewSpec
from sinks.standing import Located, Standing, column_types, lost
from sinks.values import native, plain_texts

_log = log.get(__name__)


class CacheSink:
    """See sinks.protocol.Sink."""

    name = "cache"

    def __init__(
        self, settings: Cache, pipeline: str, spec: ViewSpec, option: SinkOptions, *, loads: bool = False
    ) -> None:
        check_known(option, ("key", "value", "ttl", "list"), spec)
        self._spec = spec
        self._server = CacheServer(settings.url, settings.secret(), settings.ca_file)
        self._pattern = parse_pattern(option.options.get("key", DEFAULT_PATTERN), pipeline, spec.name, spec.key)
        is_hash = _is_hash(option, spec)
        ttl_s = _ttl_s(option, spec)
        parent = list_column(option, spec, has_entries=not is_hash and not ttl_s)
        refuse_columns(spec, self.name, [VERSION, PARENT] if parent else [VERSION])
        self._form = EntryForm(spec.columns, is_hash, ttl_s, settings.tombstone_ttl_s, parent)
        self._lists = Lists(self._pattern, self._form)
        self._shape = RowShape(spec.key, spec.columns, as_json=not is_hash)
        live = Generations(self._pattern, declaration(option, spec))
        self._generations = LoadingGenerations(live) if loads else live
        self._made_of = settings, pipeline, spec, option
        self._located: Located[Stored] = Located("the cache", spec.name)

    def position(self) -> Position | None:
        """From the store alone: its pointer, and the position's JSON for that generation."""
        with self._server.client() as client:
            stored = self._generations.stored(client)
        self._located.take(stored)
        return stored.standing.position if stored else None

    def write(self, changes: Any, position: Position) -> Written:
        """Compare and set every row, then move the position."""
        with self._server.client() as client:
            stored = self._require(client)
        stored.standing.require_types(column_types(changes, self._spec.columns))
        written = write_partitions(changes, self._shape, self._writer(stored.standing.generation, stored.text))
        with self._server.client() as client:
            self._move(client, stored, position)
        return written

    def advance(self, position: Position) -> None:
        """Move the position alone."""
        with self._server.client() as client:
            self._move(client, self._require(client), position)

    def replace(self, rows: Any, position: Position) -> Written:
        """Load a generation beside the live one, switch, and let the old one expire."""
        types = column_types(rows, self._spec.columns)
        with self._server.client() as client:
            stored = self.as_left(client)
            self._generations.sweep(client)
            generation = self._generations.begin(client)
        written = write_partitions(rows, self._shape, self._writer(generation))
        standing = Standing(self._spec.name, generation, self._generations.declaration, types, position)
        with self._server.client() as client:
            self._located.require(self._generations.stored(client))
            self._located.take(self._generations.switch(client, standing, stored))
            _log.info("cache view replaced", view=self._spec.name, generation=generation, rows=written.upserts)
            self._generations.sweep(client)
        return written

    def beside(self) -> CacheSink:
        """A generation without the pointer."""
        return CacheSink(*self._made_of, loads=True)

    def adopt(self, loaded: Sink, position: Position) -> None:
        """Switch the pointer, and let the old generation expire."""
        self.supersede(self, loaded, position)

    def supersede(self, former: Sink | None, loaded: Sink, position: Position) -> None:
        """The same; the former sink is what located the pointer, and knows what its entries are called."""
        assert isinstance(loaded, CacheSink)
        known = former if isinstance(former, CacheSink) else self
        standing = replace(loaded.standing(), position=position)
        with self._server.client() as client:
            stored = known.as_left(client)
            self._located.take(self._generations.switch(client, standing, stored))
        known.clear()

    def as_left(self, client: redis.Redis) -> Stored | None:
        """What is stored of this declaration, if it still is what this process located or wrote."""
        self._located.require(stored := self._generations.stored(client))
        return stored

    def clear(self) -> None:
        """Generations that nobody has seen, nor will."""
        with self._server.client() as client:
            self._generations.sweep(client)

    def standing(self) -> Standing:
        """What is beside the rows."""
        with self._server.client() as client:
            return self._stored(client).standing

    def mend(self, changes: Any, position: Position) -> Written:
        """Set every row, whatever version its entry claims to have."""
        with self._server.client() as client:
            stored = self._require(client)
        stored.standing.require_types(column_types(changes, self._spec.columns))
        generation = stored.standing.generation
        writer = replace(self._writer(generation, stored.text), compares=False)
        written = write_partitions(changes, self._shape, writer)
        if self._form.parent:
            entries = self._shape.entries(changes.toArrow().to_batches())
            with self._server.client() as client:
                self._lists.remove_strays(client, generation, entries)
        return written

    def types(self) -> Mapping[str, str]:
        """As the live generation was loaded with them."""
        with self._server.client() as client:
            return self._stored(client).standing.types

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """All entries of the live generation; where lists say something else, what they say."""
        with self._server.client() as client:
            standing = self._stored(client).standing
            yield from self._native(client, standing, self._values(client, standing.generation))

    def _native(self, client: redis.Redis, standing: Standing, found: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """What is stored as rows, and what only lists hold."""
        convert = [(name, native(standing.types[name], as_json=not self._form.is_hash)) for name in self._spec.columns]
        if self._form.parent:
            found = chain(found, self._lists.strays(client, standing.generation))
        for stored in map(self._read, found):
            yield tuple(to_native(stored.get(name)) for name, to_native in convert)

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        """The entries of these names; where there are lists, with all that these hold too much."""
        if not keys.num_rows:
            return
        texts = zip(*(plain_texts(keys.column(name)) for name in self._spec.key), strict=True)
        with self._server.client() as client:
            standing = self._stored(client).standing
            names = (self._pattern.entry_key(standing.generation, key).encode() for key in texts)
            yield from self._native(client, standing, self._entries(client, standing.generation, names))

    def _values(self, client: redis.Redis, generation: int) -> Iterator[Any]:
        found = client.scan_iter(match=self._pattern.glob(generation), count=SCAN_COUNT)
        yield from self._entries(client, generation, once(found))

    def _entries(self, client: redis.Redis, generation: int, names: Iterator[bytes]) -> Iterator[Any]:
        while keys := list(islice(names, SCAN_COUNT)):
            # An entry may have gone between the scan and the fetch.
            entries = [stored for stored in self._fetch(client, keys) if stored]
            yield from self._lists.as_listed(client, generation, entries) if self._form.parent else entries

    def _fetch(self, client: redis.Redis, keys: list[bytes]) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hgetall(key) if self._form.is_hash else pipe.get(key)
            return list(pipe.execute())

    def _read(self, stored: Any) -> Any:
        try:
            return self._form.read(stored)
        except ValueError as error:
            hint = f"something else writes there; run: afterimage rebuild {self._spec.name}"
            raise RecordError(f"view {self._spec.name}: the cache holds an entry that is not ours", hint) from error

    def _writer(self, generation: int, position: str = "") -> EntryWriter:
        return EntryWriter(self._server, self._pattern, generation, self._form, position)

    def _stored(self, client: redis.Redis) -> Stored:
        stored = self._generations.stored(client)
        if stored is None:
            raise lost("the cache", self._spec.name)
        return stored

    def _require(self, client: redis.Redis) -> Stored:
        """As this process located or left it; an earlier position is a failover that lost writes."""
        stored = self._stored(client)
        self._located.require(stored)
        return stored

    def _move(self, client: redis.Redis, stored: Stored, position: Position) -> None:
        self._located.take(self._generations.move(client, stored, position))


def _is_hash(option: SinkOptions, spec: ViewSpec) -> bool:
    form = option.options.get("value", "json")
    if form not in ("json", "hash"):
        raise ConfigError(f"view {spec.name}: cache value {form!r} is unknown", "it is json or hash")
    return form == "hash"


def _ttl_s(option: SinkOptions, spec: ViewSpec) -> int:
    text = option.options.get("ttl", "0").removesuffix("s")
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"view {spec.name}: cache ttl {text!r} is not a number of seconds", "for example ttl=3600")
    return int(text)
