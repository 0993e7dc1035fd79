"""The proof: for each view and sink, the view's own SQL in Postgres against the stored rows, both at one LSN.

In: settings, views, their sinks and a holder of apply. Out: one ViewProof each. Keeps true: a result counts only if
the sink stood at the snapshot's LSN before and after it was read; else all is taken again, a limited number of times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc.errors import CdcError, OperatorError, TransientError
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.batch import Target
from jobs.ledger import Ledger
from jobs.prove.compare import PAIR_BYTES, Compared, Digester, compare
from jobs.prove.holder import Holder
from jobs.prove.mending import Mender, mend_of
from jobs.prove.naming import examples
from jobs.prove.render import renderer
from jobs.prove.result import Difference, Example, Mended, OnProgress, Progress, ViewProof, unwatched
from jobs.prove.source import ColumnType, SourceCut, TextRow, source_at_lsn
from jobs.recording import located
from sinks.protocol import Position, Sink
from sinks.spec import SinkOptions, ViewSpec

ATTEMPTS: Final = 4
_REPORT_EVERY_ROWS: Final = 2_000

MakeSink = Callable[[ViewSpec, SinkOptions], Sink]


@dataclass(frozen=True, slots=True)
class Extras:
    """What a proof does besides counting: show what differs of the keys that it names, have a sink mended.

    A `mender` gets what differs while apply still stands at the LSN of the comparison.
    """

    with_values: bool = False
    mender: Mender | None = None


class _MovedError(Exception):
    """A sink went on while it was read: apply did not stand still."""


def prove(
    settings: Settings,
    specs: Sequence[ViewSpec],
    make_sink: MakeSink,
    holder: Holder,
    on_progress: OnProgress = unwatched,
    extras: Extras | None = None,
) -> list[ViewProof]:
    """Compare every view in each of its sinks."""
    ledger = Ledger(settings.delta_root, settings.delta.storage_options)
    with holder:
        for _ in range(ATTEMPTS):
            on_progress(Progress("taking a snapshot of the source"))
            with source_at_lsn(settings) as cut:
                if not holder.hold_at(cut.lsn):
                    continue
                try:
                    provers = [_ViewProver(cut, ledger, spec, on_progress, extras or Extras()) for spec in specs]
                    return [proof for prover in provers for proof in prover.against_all(make_sink)]
                except _MovedError:
                    continue
    raise TransientError(
        f"apply did not stand still in {ATTEMPTS} attempts",
        "is a second apply of this pipeline running, or this machine overloaded? try again",
        code="PROVE_MOVED",
    )


@dataclass(frozen=True, slots=True)
class _Expected:
    """A view as the source has it."""

    types: tuple[ColumnType, ...]
    digester: Digester
    pairs: bytearray
    rows: int


class _ViewProver:
    def __init__(self, cut: SourceCut, ledger: Ledger, spec: ViewSpec, on_progress: OnProgress, extras: Extras) -> None:
        self._mender = extras.mender
        self._with_values = extras.with_values
        self._cut = cut
        self._ledger = ledger
        self._spec = spec
        self._on_progress = on_progress

    def against_all(self, make_sink: MakeSink) -> Iterator[ViewProof]:
        """A proof for each sink; what one of them cannot do is its own problem."""
        started = time.monotonic()
        try:
            expected = self._read_source()
        except CdcError as error:
            yield from (self._failed(options, started, error) for options in self._spec.sinks)
            return
        for options in self._spec.sinks:
            try:
                proof = self._against(make_sink(self._spec, options), options, expected)
            except CdcError as error:
                yield self._failed(options, started, error)
            else:
                yield replace(proof, seconds=time.monotonic() - started)
            started = time.monotonic()

    def _read_source(self) -> _Expected:
        spec = self._spec
        if spec.stopped is not None:
            raise OperatorError(f"stopped alone: {spec.stopped.message}", spec.stopped.remedy, code="TABLE_STOPPED")
        types = self._cut.types(spec)
        digester = Digester([spec.columns.index(column) for column in spec.key])
        pairs = digester.all(self._watched("reading Postgres", None, self._cut.rows(spec), None))
        return _Expected(types, digester, pairs, len(pairs) // PAIR_BYTES)

    def _against(self, sink: Sink, options: SinkOptions, expected: _Expected) -> ViewProof:
        first = self._standing(sink)
        stored = self._watched(f"reading {sink.name}", sink.name, self._stored(sink, expected), expected.rows)
        found = compare(expected.pairs, expected.digester.all(stored))
        named = () if found.equal else self._examples(sink, expected, found)
        last = self._standing(sink)
        problem = self._behind(last) or self._behind(first)
        mended = None if found.equal or problem else self._mend(sink, options, expected, found)
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
            with_values=self._with_values,
            mended=mended,
        )

    def _standing(self, sink: Sink) -> Position:
        """Where the sink stands; beyond the cut, apply did not stand still."""
        target = Target(self._spec.name, sink.name, "")
        position = located({target: sink}, {target: sink.position()}, self._ledger.read())[target]
        if position is None:
            raise OperatorError(
                f"{self._spec.name} in {sink.name} is empty, lost or of another declaration",
                f"see the log of apply, or rebuild it: afterimage rebuild {self._spec.name}",
                code="VIEW_LOST",
            )
        if position.lsn > self._cut.lsn:
            raise _MovedError
        return position

    def _behind(self, position: Position) -> str | None:
        """Why the sink is not at the cut, if it is before it."""
        here, there = format_lsn(position.lsn), format_lsn(self._cut.lsn)
        return None if position.lsn == self._cut.lsn else f"it stands at {here}, the source was read at {there}"

    def _stored(self, sink: Sink, expected: _Expected) -> Iterator[TextRow]:
        renderers = [renderer(column.oid, column.mod) for column in expected.types]
        for row in sink.rows():
            if len(row) != len(renderers):
                raise OperatorError(f"{sink.name} gives {len(row)} columns for {len(renderers)}", code="SINK_SHAPE")
            yield tuple([render(value) for render, value in zip(renderers, row, strict=True)])

    def _examples(self, sink: Sink, expected: _Expected, found: Compared) -> tuple[Example, ...]:
        self._on_progress(Progress("naming differing keys", self._spec.name, sink.name))
        sides = self._cut.rows(self._spec), self._stored(sink, expected)
        columns, wanted = self._spec.columns, found.sample()
        return examples(columns, expected.digester, wanted, sides, with_values=self._with_values)

    def _mend(self, sink: Sink, options: SinkOptions, expected: _Expected, found: Compared) -> Mended | None:
        if self._mender is None:
            return None
        self._on_progress(Progress("mending", self._spec.name, sink.name))
        wrong = found.without(Difference.MISSING) if _may_expire(options) else found
        sides = self._cut.rows(self._spec), self._stored(sink, expected)
        at = self._spec.name, sink.name, self._cut.lsn
        return self._mender(mend_of(*at, expected.digester, wrong, sides))

    def _watched(self, doing: str, sink: str | None, rows: Iterable[Any], total: int | None) -> Iterator[Any]:
        done = 0
        for done, row in enumerate(rows, 1):
            if done % _REPORT_EVERY_ROWS == 1:
                self._on_progress(Progress(doing, self._spec.name, sink, done, total))
            yield row
        self._on_progress(Progress(doing, self._spec.name, sink, done, total))

    def _failed(self, options: SinkOptions, started: float, error: CdcError) -> ViewProof:
        problem = f"{error.message} ({error.hint})" if error.hint else error.message
        return ViewProof(self._spec.name, options.name, self._cut.lsn, time.monotonic() - started, problem=problem)


def _may_expire(options: SinkOptions) -> bool:
    """What a TTL took away is no difference, nor to be put back."""
    return "ttl" in options.options
