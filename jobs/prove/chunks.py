"""A large view proved in chunks of its key, each at one LSN of its own; then what the sinks hold besides.

In: a view with an order, its sinks, rounds. Out: a ViewProof for each sink. Keeps true: every row that the source has
in a chunk is compared at the chunk's LSN; a key that no chunk had is looked up, and counts as found at one LSN as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from cdc.errors import CdcError
from cdc.settings import Settings
from jobs.prove.chunk_order import ChunkOrder, Key
from jobs.prove.compare import Keys, TextRow, keys_of
from jobs.prove.prover import Asked, MakeSink, Piece, Prover, rendered, watched
from jobs.prove.result import Difference, Progress, ViewProof, joined
from jobs.prove.rounds import Rounds
from jobs.prove.source import ColumnType, SourceCut, source_now
from sinks.protocol import Sink
from sinks.spec import Kind, SinkOptions, ViewSpec

STRAYS_MAX: Final = 5_000
"""Keys that are looked up at once."""
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
        # A query whose joins and groups Postgres would compute in full for each chunk is better read in one.
        if order is None or (spec.kind is Kind.QUERY and order.cost > whole.cost * _WORTH):
            return None
    except CdcError:
        return None
    return Large(spec, order, types)


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

    def run(self) -> list[ViewProof]:
        """A proof for each sink."""
        begin: Key | None = None
        while any(sink.is_read for sink in self._sinks):
            begin = self._rounds.run(partial(self._chunk, begin))
            if begin is None:
                break
        known = np.unique(np.frombuffer(bytes(self._keys), "<u8"))
        for sink in self._sinks:
            if sink.is_read:
                self._read_strays(sink, known)
        return [joined(sink.parts) for sink in self._sinks]

    def _chunk(self, begin: Key | None, cut: SourceCut) -> Key | None:
        """Compare the next chunk; where it ended, None at the view's end."""
        order = self._large.order
        end = order.end(cut, begin, self._chunk_rows)
        prover = self._compare(cut, Piece(order.between(begin, end)), [each for each in self._sinks if each.is_read])
        if prover.expected is not None:
            self._keys += keys_of(prover.expected.pairs).tobytes()
            self._rounds.spend(prover.expected.rows)
        return end

    def _compare(self, cut: SourceCut, piece: Piece, sinks: Sequence[_Sink]) -> Prover:
        prover = Prover(cut, self._asked, piece)
        parts = list(prover.against(self._make_sink, [sink.options for sink in sinks]))
        for sink, part in zip(sinks, parts, strict=True):
            sink.parts.append(part)
            if sink.options.name in prover.found:
                repeated = prover.found[sink.options.name].keys[Difference.DUPLICATE]
                sink.repeated |= {key.tobytes() for key in repeated.astype("<u8")}
        return prover

    def _read_strays(self, sink: _Sink, known: Keys) -> None:
        """Look up what the sink holds besides, some keys at a time."""
        started, lsn = time.monotonic(), sink.parts[-1].lsn
        try:
            store = self._make_sink(self._large.spec, sink.options)
            strays = self._strays(store, sink, known)
            while some := dict(islice(strays, STRAYS_MAX)):
                self._rounds.run(partial(self._look_up, sink, some))
        except CdcError as error:
            problem = f"{error.message} ({error.hint})" if error.hint else error.message
            spent = time.monotonic() - started
            sink.parts.append(ViewProof(self._large.spec.name, sink.options.name, lsn, spent, problem=problem))

    def _look_up(self, sink: _Sink, strays: dict[TextRow, bytes | None], cut: SourceCut) -> None:
        keys = [tuple(text or "" for text in key) for key in strays]
        repeated = frozenset(digest for digest in strays.values() if digest is not None)
        self._compare(cut, Piece(self._large.order.among(keys), tuple(strays), repeated), [sink])

    def _strays(self, store: Sink, sink: _Sink, known: Keys) -> Iterator[tuple[TextRow, bytes | None]]:
        """Keys that no chunk had, and with their digests those that are there twice; apply runs on meanwhile."""
        digester = self._asked.digester
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
