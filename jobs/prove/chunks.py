"""A large view proved in chunks of its key, each at one LSN of its own; then what the sinks hold besides.

In: a view with an order, its sinks, rounds. Out: a ViewProof for each sink. Keeps true: every row that the source has
in a chunk is compared at the chunk's LSN; a key that no chunk had is looked up, and counts as found at one LSN as well.
The chunks end where the view ended at first: a table may grow faster than it can be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from cdc.errors import CdcError
from cdc.settings import Settings
from jobs.prove.chunk_order import ChunkOrder, Key
from jobs.prove.compare import Keys, TextRow, keys_of
from jobs.prove.prover import Asked, MakeSink, Piece, Prover, failed, rendered, watched
from jobs.prove.result import Difference, Progress, ViewProof, joined
from jobs.prove.rounds import Rounds
from jobs.prove.source import ColumnType, SourceCut, source_now
from sinks.spec import Kind, SinkOptions, ViewSpec

STRAYS_MAX: Final = 5_000
"""Keys that are looked up at once."""
Strays = Iterator[tuple[TextRow, bytes | None]]
"""Keys, with their digests if they are repeated."""
_WORTH: Final = 0.5
"""A chunk of a query that costs more than this share of all of it is none."""


@dataclass(frozen=True, slots=True)
class Large:
    """A view that is read in chunks."""

    spec: ViewSpec
    order: ChunkOrder
    types: tuple[ColumnType, ...]


def large_views(settings: Settings, specs: Sequence[ViewSpec]) -> dict[str, Large]:
    """Those among the views, by name. What cannot be told is found out where they are read."""
    with source_now(settings) as source:
        found = [_large(source, spec, settings.prove.chunk_rows) for spec in specs if spec.stopped is None]
    return {large.spec.name: large for large in found if large is not None}


def _large(source: SourceCut, spec: ViewSpec, chunk_rows: int) -> Large | None:
    try:
        whole = source.estimate(spec)
        if whole.rows <= chunk_rows:
            return None
        types = source.types(spec)
        order = ChunkOrder.of(source, spec, types, chunk_rows)
        if order is None or (spec.kind is Kind.QUERY and not _is_worth(source, order, whole.cost, chunk_rows)):
            return None
    except CdcError:
        return None
    return Large(spec, order, types)


def _is_worth(source: SourceCut, order: ChunkOrder, whole: float, chunk_rows: int) -> bool:
    """A query whose joins and groups Postgres would compute in full for each chunk is better read in one piece.

    That the first chunk is cheap says nothing of the others: the condition on the key must be pushed down as well.
    """
    if order.cost(source, None, chunk_rows) > whole * _WORTH:
        return False
    begin = order.end(source, None, chunk_rows)
    return begin is not None and order.cost(source, begin, chunk_rows) <= whole * _WORTH


@dataclass(slots=True)
class _Sink:
    """What is known of one sink so far."""

    options: SinkOptions
    parts: list[ViewProof] = field(default_factory=list)
    repeated: set[bytes] = field(default_factory=set)
    """Keys that are known to be there twice."""

    @property
    def is_read(self) -> bool:
        return not self.parts or self.parts[-1].problem is None

    def take(self, part: ViewProof, prover: Prover) -> None:
        """One more piece."""
        self.parts.append(part)
        if self.options.name in prover.found:
            repeated = prover.found[self.options.name].keys[Difference.DUPLICATE]
            self.repeated |= {key.tobytes() for key in repeated.astype("<u8")}


class ChunkedProof:
    """One large view; `run` once."""

    def __init__(self, large: Large, asked: Asked, rounds: Rounds, make_sink: MakeSink, chunk_rows: int) -> None:
        self._large = large
        self._asked = asked
        self._rounds = rounds
        self._make_sink = make_sink
        self._chunk_rows = chunk_rows
        self._sinks = [_Sink(options) for options in large.spec.sinks]
        self._keys = bytearray()
        self._last: Key | None = None

    def run(self) -> list[ViewProof]:
        """A proof for each sink."""
        begin: Key | None = None
        while any(sink.is_read for sink in self._sinks):
            begin = self._rounds.run(partial(self._chunk, begin))
            if begin is None:
                break
        self._read_strays([sink for sink in self._sinks if sink.is_read])
        return [joined(sink.parts, self._asked.extras.keys_max) for sink in self._sinks]

    def _chunk(self, begin: Key | None, cut: SourceCut) -> Key | None:
        """Compare the next chunk; where it ended, None at the view's end."""
        order, sinks = self._large.order, [sink for sink in self._sinks if sink.is_read]
        started = time.monotonic()
        try:
            if begin is None:
                self._last = order.last(cut)
            end = order.end(cut, begin, self._chunk_rows, self._last)
        except CdcError as error:
            for sink in sinks:
                self._fail(sink, cut.lsn, started, error)
            return None
        prover = Prover(cut, self._asked, Piece(order.between(begin, end or self._last)))
        parts = list(prover.against(self._make_sink, [sink.options for sink in sinks]))
        for sink, part in zip(sinks, parts, strict=True):
            sink.take(part, prover)
        if prover.expected is not None:
            self._keys += keys_of(prover.expected.pairs).tobytes()
            self._rounds.spend(prover.expected.rows)
        return end if end != self._last else None

    def _read_strays(self, sinks: Sequence[_Sink]) -> None:
        """Look up what the sinks hold besides, some keys of each at a time."""
        known = np.unique(np.frombuffer(bytes(self._keys), "<u8"))
        strays = {sink.options.name: self._strays(sink, known) for sink in sinks}
        while some := {sink.options.name: found for sink in sinks if (found := self._next(sink, strays))}:
            self._rounds.run(partial(self._look_up, some))

    def _next(self, sink: _Sink, strays: Mapping[str, Strays]) -> dict[TextRow, bytes | None]:
        started = time.monotonic()
        try:
            return dict(islice(strays[sink.options.name], STRAYS_MAX)) if sink.is_read else {}
        except CdcError as error:
            self._fail(sink, sink.parts[-1].lsn, started, error)
            return {}

    def _fail(self, sink: _Sink, lsn: int, started: float, error: CdcError) -> None:
        sink.parts.append(failed(self._large.spec, sink.options, lsn, time.monotonic() - started, error))

    def _look_up(self, strays: Mapping[str, dict[TextRow, bytes | None]], cut: SourceCut) -> None:
        done = []
        for sink in (each for each in self._sinks if each.options.name in strays):
            found = strays[sink.options.name]
            keys = [tuple(text or "" for text in key) for key in found]
            repeated = frozenset(digest for digest in found.values() if digest is not None)
            prover = Prover(cut, self._asked, Piece(self._large.order.among(keys), tuple(found), repeated))
            done.append((sink, list(prover.against(self._make_sink, [sink.options])), prover))
        # Only now: where one of them has moved, all are looked up again.
        for sink, (part,), prover in done:
            sink.take(part, prover)

    def _strays(self, sink: _Sink, known: Keys) -> Strays:
        """Keys that no chunk had, and with their digests those that are there twice; apply runs on meanwhile."""
        digester, store = self._asked.digester, self._make_sink(self._large.spec, sink.options)
        met = np.zeros(len(known), np.bool_)
        others: set[bytes] = set()
        progress = Progress(f"reading {store.name}", self._large.spec.name, store.name, total=len(known))
        rows = watched(self._asked, progress, rendered(store, store.rows(), self._large.types))
        for row in rows:
            key = tuple(row[at] for at in digester.key_at)
            digest = digester.of_key(key)
            number = np.frombuffer(digest, "<u8")[0]
            at = int(np.searchsorted(known, number))
            if at == len(known) or known[at] != number:
                if digest not in others:
                    others.add(digest)
                    yield key, None
                continue
            if met[at] and digest not in sink.repeated:
                sink.repeated.add(digest)
                yield key, digest
            met[at] = True
