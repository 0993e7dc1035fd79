"""A view in OpenSearch, one document a row, behind an alias.

In: DataFrames of changes or of all rows. Out: documents, then a refresh, then the position. Keeps true: versions are
commit LSNs, so repeats and late batches change nothing; what a position says can be searched.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cdc import log
from cdc.errors import ConfigError
from cdc.names import document_id
from cdc.settings import Search
from sinks.entries import RowShape
from sinks.executor import write_partitions
from sinks.options import check_known, declaration, refuse_columns
from sinks.protocol import Position, Sink, Written
from sinks.search.bulk import BulkWriter
from sinks.search.generations import Generations, Stored
from sinks.search.loading import LoadingGenerations
from sinks.search.mapping import METADATA_FIELDS, index_body, parse_overrides
from sinks.search.nested import nested_of
from sinks.search.server import SearchConnection, SearchServer
from sinks.spec import SinkOptions, ViewSpec
from sinks.standing import Located, Standing, column_types, lost
from sinks.values import native, plain_texts

RETIRED_S: Final = 30.0
"""How long a former index stays for searches that began before the switch."""
SCROLL_ROWS: Final = 500
SCROLL_KEPT: Final = "5m"

_log = log.get(__name__)


class SearchSink:
    """See sinks.protocol.Sink."""

    name = "search"

    def __init__(
        self,
        settings: Search,
        pipeline: str,
        spec: ViewSpec,
        option: SinkOptions,
        *,
        retired_s: float = RETIRED_S,
        loads: bool = False,
    ) -> None:
        check_known(option, ("mapping",), spec)
        refuse_columns(spec, self.name, METADATA_FIELDS)
        self._spec = spec
        self._nested = nested_of(spec)
        self._overrides = parse_overrides(option.options.get("mapping"), spec)
        self._gc_deletes = settings.gc_deletes
        self._server = SearchServer(settings.url.rstrip("/"), settings.user, settings.secret(), settings.ca_file)
        live = _generations(pipeline, spec, option)
        self._generations = LoadingGenerations(live) if loads else live
        self._made_of = settings, pipeline, spec, option
        self._shape = RowShape(spec.key, spec.columns, as_json=True)
        self._retired: dict[str, float] = {}
        self._retired_s = retired_s
        self._located: Located[Stored] = Located("OpenSearch", spec.name)

    def position(self) -> Position | None:
        """From the store alone: the index behind the alias, and the position that counts for it."""
        with self._server.connection() as connection:
            stored = self._generations.stored(connection)
            self._located.take(stored)
            if stored is not None:
                self._retire(connection, stored)
        return stored.standing.position if stored and not stored.ended else None

    def write(self, changes: Any, position: Position) -> Written:
        """Bulk by executors, one refresh, then the position."""
        with self._server.connection() as connection:
            stored = self._require(connection)
        stored.standing.require_types(column_types(changes, self._spec.columns))
        written = write_partitions(changes, self._shape, self._writer(stored.standing.generation))
        with self._server.connection() as connection:
            self._generations.refresh(connection, stored.index)
            self._located.take(self._generations.move(connection, stored, position))
            self._drop_retired(connection)
        return written

    def advance(self, position: Position) -> None:
        """Move the position alone."""
        with self._server.connection() as connection:
            self._located.take(self._generations.move(connection, self._require(connection), position))
            self._drop_retired(connection)

    def replace(self, rows: Any, position: Position) -> Written:
        """Load an index beside the live one, then switch the alias."""
        types = column_types(rows, self._spec.columns)
        with self._server.connection() as connection:
            stored = self.as_left(connection)
            self._generations.drop(connection, self._generations.leftovers(connection))
            body = index_body(types, self._overrides, self._gc_deletes, self._nested)
            generation = self._generations.begin(connection, body)
        written = write_partitions(rows, self._shape, self._writer(generation))
        standing = Standing(self._spec.name, generation, self._generations.declaration, types, position)
        with self._server.connection() as connection:
            self._located.require(self._generations.stored(connection))
            made = self._generations.switch(connection, standing, stored)
            self._located.take(made)
            self._retire(connection, made)
        _log.info("search view replaced", view=self._spec.name, generation=generation, rows=written.upserts)
        return written

    def beside(self) -> SearchSink:
        """An index without the alias."""
        return SearchSink(*self._made_of, loads=True)

    def adopt(self, loaded: Sink, position: Position) -> None:
        """Switch the alias."""
        self.supersede(self, loaded, position)

    def supersede(self, former: Sink | None, loaded: Sink, position: Position) -> None:
        """The same; the former sink is what located the index."""
        assert isinstance(loaded, SearchSink)
        known = former if isinstance(former, SearchSink) else self
        with self._server.connection() as connection:
            stored = known.as_left(connection)
            standing = replace(loaded.standing(), position=position)
            made = self._generations.switch(connection, standing, stored)
            self._located.take(made)
            self._retire(connection, made)

    def as_left(self, connection: SearchConnection) -> Stored | None:
        """What is stored of this declaration, if it still is what this process located or wrote."""
        self._located.require(stored := self._generations.stored(connection))
        return stored

    def clear(self) -> None:
        """Indexes that nobody has seen, nor will."""
        with self._server.connection() as connection:
            stored = self._generations.stored(connection)
            former = self._generations.former(connection, stored) if stored is not None else []
            left = [index for index in self._generations.leftovers(connection) if index not in former]
            self._generations.drop(connection, left)

    def standing(self) -> Standing:
        """What is beside the rows."""
        with self._server.connection() as connection:
            return self._stored(connection).standing

    def mend(self, changes: Any, position: Position) -> Written:
        """Bulk and a refresh. A document whose version lies beyond the position stays: only a rebuild mends that."""
        with self._server.connection() as connection:
            stored = self._require(connection)
        stored.standing.require_types(column_types(changes, self._spec.columns))
        written = write_partitions(changes, self._shape, self._writer(stored.standing.generation))
        with self._server.connection() as connection:
            self._generations.refresh(connection, stored.index)
        return written

    def types(self) -> Mapping[str, str]:
        """As the live index was loaded with them."""
        with self._server.connection() as connection:
            return self._stored(connection).standing.types

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """All documents of the live index, as one snapshot."""
        with self._server.connection() as connection:
            stored = self._stored(connection)
            # What somebody else wrote past the sink shall be seen as well.
            self._generations.refresh(connection, stored.index)
            types = stored.standing.types
            convert = [(name, native(types[name], as_json=True)) for name in self._spec.columns]
            for source in _scroll(connection, stored.index):
                kept = self._nested.texts(source)
                yield tuple(to_native(kept.get(name, source.get(name))) for name, to_native in convert)

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        """The documents of these ids, as they are now."""
        ids = [
            document_id(key) for key in zip(*(plain_texts(keys.column(name)) for name in self._spec.key), strict=True)
        ]
        with self._server.connection() as connection:
            stored = self._stored(connection)
            types = stored.standing.types
            convert = [(name, native(types[name], as_json=True)) for name in self._spec.columns]
            for start in range(0, len(ids), SCROLL_ROWS):
                found = connection.ask("POST", f"/{stored.index}/_mget", {"ids": ids[start : start + SCROLL_ROWS]})
                for source in (hit["_source"] for hit in found.body["docs"] if hit.get("found")):
                    kept = self._nested.texts(source)
                    yield tuple(to_native(kept.get(name, source.get(name))) for name, to_native in convert)

    def _writer(self, generation: int) -> BulkWriter:
        alias = self._generations.write_alias(generation)
        return BulkWriter(self._server, self._spec.name, alias, self._spec.columns, self._nested)

    def _stored(self, connection: SearchConnection) -> Stored:
        stored = self._generations.stored(connection)
        if stored is None:
            raise lost("OpenSearch", self._spec.name)
        return stored

    def _require(self, connection: SearchConnection) -> Stored:
        """As this process located or left it."""
        stored = self._stored(connection)
        self._located.require(stored)
        if stored.ended:
            raise lost("OpenSearch", self._spec.name)
        return stored

    def _retire(self, connection: SearchConnection, stored: Stored) -> None:
        now = time.monotonic()
        former = self._generations.former(connection, stored)
        self._retired = {name: self._retired.get(name, now) for name in former}

    def _drop_retired(self, connection: SearchConnection) -> None:
        due = [name for name, since in self._retired.items() if time.monotonic() - since >= self._retired_s]
        if due:
            self._generations.drop(connection, due)
            self._retired = {name: since for name, since in self._retired.items() if name not in due}


def _scroll(connection: SearchConnection, index: str) -> Iterator[dict[str, Any]]:
    query = {"size": SCROLL_ROWS, "sort": ["_doc"], "query": {"match_all": {}}}
    page = connection.ask("POST", f"/{index}/_search?scroll={SCROLL_KEPT}", query).body
    try:
        while hits := page["hits"]["hits"]:
            yield from (hit["_source"] for hit in hits)
            page = connection.ask(
                "POST", "/_search/scroll", {"scroll": SCROLL_KEPT, "scroll_id": page["_scroll_id"]}
            ).body
    finally:
        connection.ask("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]}, accept=(404,))


def _generations(pipeline: str, spec: ViewSpec, option: SinkOptions) -> Generations:
    made = Generations(pipeline, spec.name, declaration(option, spec, *nested_of(spec).words()))
    if made.alias == made.positions:
        message = f"a view called {spec.name} cannot have the search sink: {made.positions} holds the positions"
        raise ConfigError(message, "rename the view")
    return made
