"""A view, or a piece of it, in each of its sinks against the source, both at the LSN of one snapshot.

In: a snapshot at whose LSN apply is held, a view, its sinks. Out: a ViewProof for each sink, and the keys that the
source has. Keeps true: a sink that did not stand at that LSN, before it was read and after, is not proved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc.errors import CdcError, OperatorError
from cdc.lsn import format_lsn
from jobs.batch import Target
from jobs.ledger import Ledger
from jobs.prove.compare import PAIR_BYTES, Compared, Digester, compare
from jobs.prove.mending import Mender, mend_of
from jobs.prove.naming import examples
from jobs.prove.render import renderer
from jobs.prove.result import EXAMPLES_MAX, Difference, Example, Mended, OnProgress, Progress, ViewProof
from jobs.prove.rounds import MovedError
from jobs.prove.source import ColumnType, SourceCut, TextRow
from jobs.recording import located
from jobs.text_rows import Shape, keys_as_stored
from sinks.protocol import Position, Sink
from sinks.spec import SinkOptions, ViewSpec

_REPORT_EVERY_ROWS: Final = 2_000

MakeSink = Callable[[ViewSpec, SinkOptions], Sink]


@dataclass(frozen=True, slots=True)
class Extras:
    """What a proof does besides counting: show what differs of the keys that it names, have a sink mended.

    A `mender` gets what differs while apply still stands at the LSN of the comparison.
    """

    with_values: bool = False
    mender: Mender | None = None
    rest: Callable[[float], object] = time.sleep
    """Waits between two chunks; it may raise, to end the proof."""
    keys_max: int = EXAMPLES_MAX
    """So many keys of each view and sink are named."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows that a condition selects, of `keys` if these are known before; `repeated` ones are so in the sink."""

    condition: str
    keys: tuple[TextRow, ...] | None = None
    repeated: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be proved of which view, how it is told, and the digests of all pieces' keys."""

    spec: ViewSpec
    ledger: Ledger
    on_progress: OnProgress
    extras: Extras
    digester: Digester

    @classmethod
    def of(cls, spec: ViewSpec, ledger: Ledger, on_progress: OnProgress, extras: Extras) -> Asked:
        """With a salt of its own."""
        return cls(spec, ledger, on_progress, extras, Digester([spec.columns.index(column) for column in spec.key]))


@dataclass(frozen=True, slots=True)
class Expected:
    """A piece as the source has it; `keys` where it is not the whole view."""

    types: tuple[ColumnType, ...]
    pairs: bytearray
    keys: frozenset[TextRow] | None

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.pairs) // PAIR_BYTES


class Prover:
    """One snapshot and one view; without a piece all of it."""

    def __init__(self, cut: SourceCut, asked: Asked, piece: Piece | None = None) -> None:
        self._cut = cut
        self._asked = asked
        self._spec = asked.spec
        self._piece = piece
        self.expected: Expected | None = None
        """Once the source has been read."""
        self.found: dict[str, Compared] = {}
        """By sink, as far as it could be read."""

    def against(self, make_sink: MakeSink, sinks: Sequence[SinkOptions]) -> Iterator[ViewProof]:
        """A proof for each sink; what one of them cannot do is its own problem."""
        started = time.monotonic()
        try:
            expected = self.expected = self._read_source()
        except CdcError as error:
            yield from (self._failed(options, started, error) for options in sinks)
            return
        for options in sinks:
            try:
                proof = self._against(make_sink(self._spec, options), options, expected)
            except CdcError as error:
                yield self._failed(options, started, error)
            else:
                yield replace(proof, seconds=time.monotonic() - started)
            started = time.monotonic()

    def _read_source(self) -> Expected:
        spec, piece = self._spec, self._piece
        if spec.stopped is not None:
            raise OperatorError(f"stopped alone: {spec.stopped.message}", spec.stopped.remedy, code="TABLE_STOPPED")
        types = self._cut.types(spec)
        rows = self._watched("reading Postgres", None, self._source_rows(), None)
        if piece is None:
            return Expected(types, self._asked.digester.all(rows), None)
        if piece.keys is not None:
            return Expected(types, self._asked.digester.all(rows), frozenset(piece.keys))
        keys: set[TextRow] = set()
        pairs = self._asked.digester.all(self._noted(rows, keys))
        return Expected(types, pairs, frozenset(keys))

    def _noted(self, rows: Iterable[TextRow], keys: set[TextRow]) -> Iterator[TextRow]:
        for row in rows:
            keys.add(self._key(row))
            yield row

    def _key(self, row: TextRow) -> TextRow:
        return tuple(row[at] for at in self._asked.digester.key_at)

    def _source_rows(self) -> Iterator[TextRow]:
        piece = self._piece
        if piece is None:
            return self._cut.rows(self._spec)
        rows = self._cut.rows(self._spec, piece.condition)
        # Postgres may take other keys for equal that are printed in another way: with citext, say.
        return rows if piece.keys is None else _of_keys(rows, frozenset(piece.keys), self._key)

    def _against(self, sink: Sink, options: SinkOptions, expected: Expected) -> ViewProof:
        first = self._standing(sink)
        stored = self._watched(f"reading {sink.name}", sink.name, self._stored(sink, expected), expected.rows)
        found = compare(expected.pairs, self._asked.digester.all(stored))
        if self._piece is not None and self._piece.repeated:
            found = found.with_repeated(self._piece.repeated)
        named = () if found.equal else self._examples(sink, expected, found)
        last = self._standing(sink)
        problem = self._behind(last) or self._behind(first)
        mended = None if found.equal or problem else self._mend(sink, options, expected, found)
        self.found[options.name] = found
        return ViewProof(
            self._spec.name,
            options.name,
            self._cut.lsn,
            0.0,
            rows=expected.rows,
            missing=found.count(Difference.MISSING),
            extra=found.count(Difference.EXTRA),
            different=found.count(Difference.DIFFERENT),
            duplicate=found.count(Difference.DUPLICATE),
            examples=named,
            may_expire=_may_expire(options),
            problem=problem,
            unfit=last.unfit,
            with_values=self._asked.extras.with_values,
            mended=mended,
        )

    def _standing(self, sink: Sink) -> Position:
        """Where the sink stands; beyond the cut, apply did not stand still."""
        target = Target(self._spec.name, sink.name, "")
        position = located({target: sink}, {target: sink.position()}, self._asked.ledger.read())[target]
        if position is None:
            raise OperatorError(
                f"{self._spec.name} in {sink.name} is empty, lost or of another declaration",
                f"see the log of apply, or rebuild it: afterimage rebuild {self._spec.name}",
                code="VIEW_LOST",
            )
        if position.lsn > self._cut.lsn:
            raise MovedError
        return position

    def _behind(self, position: Position) -> str | None:
        """Why the sink is not at the cut, if it is before it."""
        here, there = format_lsn(position.lsn), format_lsn(self._cut.lsn)
        return None if position.lsn == self._cut.lsn else f"it stands at {here}, the source was read at {there}"

    def _stored(self, sink: Sink, expected: Expected) -> Iterator[TextRow]:
        """The sink's rows of this piece."""
        rows = rendered(sink, self._native_rows(sink, expected), expected.types)
        if expected.keys is None:
            return rows
        return _of_keys(rows, expected.keys, self._key)

    def _native_rows(self, sink: Sink, expected: Expected) -> Iterator[tuple[Any, ...]]:
        if expected.keys is None:
            return sink.rows()
        shape = Shape(self._spec.columns, self._spec.key, sink.types())
        stored = keys_as_stored(shape, list(expected.keys))
        # A key that the sink's types cannot hold may be there nevertheless, as something else.
        return sink.rows() if stored is None else sink.rows_of(stored)

    def _examples(self, sink: Sink, expected: Expected, found: Compared) -> tuple[Example, ...]:
        asked = self._asked
        asked.on_progress(Progress("naming differing keys", self._spec.name, sink.name))
        sides = self._source_rows(), self._stored(sink, expected)
        columns, with_values = self._spec.columns, asked.extras.with_values
        return examples(columns, asked.digester, found.sample(asked.extras.keys_max), sides, with_values=with_values)

    def _mend(self, sink: Sink, options: SinkOptions, expected: Expected, found: Compared) -> Mended | None:
        if self._asked.extras.mender is None:
            return None
        self._asked.on_progress(Progress("mending", self._spec.name, sink.name))
        wrong = found.without(Difference.MISSING) if _may_expire(options) else found
        sides = self._source_rows(), self._stored(sink, expected)
        at = self._spec.name, sink.name, self._cut.lsn
        return self._asked.extras.mender(mend_of(*at, self._asked.digester, wrong, sides))

    def _watched(self, doing: str, sink: str | None, rows: Iterable[Any], total: int | None) -> Iterator[Any]:
        return watched(self._asked, Progress(doing, self._spec.name, sink, 0, total), rows)

    def _failed(self, options: SinkOptions, started: float, error: CdcError) -> ViewProof:
        return failed(self._spec, options, self._cut.lsn, time.monotonic() - started, error)


def failed(spec: ViewSpec, options: SinkOptions, lsn: int, seconds: float, error: CdcError) -> ViewProof:
    """What is told of a sink that could not be compared."""
    problem = f"{error.message} ({error.hint})" if error.hint else error.message
    return ViewProof(spec.name, options.name, lsn, seconds, problem=problem)


def _of_keys(
    rows: Iterable[TextRow], keys: frozenset[TextRow], key_of: Callable[[TextRow], TextRow]
) -> Iterator[TextRow]:
    return (row for row in rows if key_of(row) in keys)


def rendered(sink: Sink, rows: Iterable[tuple[Any, ...]], types: Sequence[ColumnType]) -> Iterator[TextRow]:
    """A sink's rows as Postgres would print them."""
    renderers = [renderer(column.oid, column.mod) for column in types]
    for row in rows:
        if len(row) != len(renderers):
            raise OperatorError(f"{sink.name} gives {len(row)} columns for {len(renderers)}", code="SINK_SHAPE")
        yield tuple([render(value) for render, value in zip(renderers, row, strict=True)])


def watched(asked: Asked, progress: Progress, rows: Iterable[TextRow]) -> Iterator[TextRow]:
    """The rows, with progress told now and then."""
    done = 0
    for done, row in enumerate(rows, 1):
        if done % _REPORT_EVERY_ROWS == 1:
            asked.on_progress(replace(progress, done=done))
        yield row
    asked.on_progress(replace(progress, done=done))


def _may_expire(options: SinkOptions) -> bool:
    """What a TTL took away is no difference, nor to be put back."""
    return "ttl" in options.options
