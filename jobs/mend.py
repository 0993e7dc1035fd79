"""A repair carried out by the process that owns the sinks: the rows of a Mend, written where the sink stands.

In: a Mend, the sinks. Out: what was written. Keeps true: nothing is written unless the sink stands at the very LSN of
the proof; positions do not move; the ledger names the Delta table's new version before the mend is told done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from cdc.errors import OperatorError
from cdc.log import get
from cdc.lsn import format_lsn
from jobs.batch import Target
from jobs.failures import translated
from jobs.ledger import Ledger
from jobs.pipeline import Pipeline
from jobs.prove.mending import Mend
from jobs.prove.result import Mended
from jobs.recording import located, recorded
from jobs.text_rows import Shape, changes, ddl, is_ours
from sinks.arrow_frames import frame_of
from sinks.delta import DeltaSink
from sinks.protocol import MEND_KEYS_MAX, Position, Sink
from sinks.standing import overtaken

_log = get(__name__)

T = TypeVar("T")


class SinkMender:
    """Mends the sinks of one pipeline; `confirm_owner` is asked before each write."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, ledger: Ledger, confirm_owner: Callable[[], None]
    ) -> None:
        self._spark = spark
        self._specs = pipeline.specs
        self._sinks = pipeline.sinks
        self._ledger = ledger
        self._confirm_owner = confirm_owner

    def __call__(self, mend: Mend) -> Mended:
        """Write all of it, some keys at a time: whoever is killed leaves keys right, or as they were."""
        target, sink = self._sink(mend)
        position = located({target: sink}, {target: sink.position()}, self._ledger.read())[target]
        if position is None or position.lsn != mend.lsn:
            raise overtaken(mend.sink, mend.view)
        spec = self._specs[mend.view]
        shape = Shape(spec.columns, spec.key, sink.types())
        if not is_ours(shape):
            return Mended(left=mend.left + len(mend.rows) + len(mend.gone))
        written = deleted = 0
        left = mend.left
        for rows, gone in _portions(mend.rows, mend.gone):
            table, unread = changes(shape, rows, gone, mend.lsn)
            left += unread
            if table.num_rows:
                self._confirm_owner()
                with translated(f"mending {mend.view} in {mend.sink}"):
                    frame = frame_of(self._spark, table, _schema(shape))
                    done = sink.mend(frame, position)
                written, deleted, left = written + done.upserts, deleted + done.deletes, left + len(done.rejected)
        self._record(target, sink, position)
        _log.info("view mended", view=mend.view, sink=mend.sink, lsn=format_lsn(mend.lsn), keys=written + deleted)
        return Mended(written, deleted, left)

    def _sink(self, mend: Mend) -> tuple[Target, Sink]:
        for target, sink in self._sinks.items():
            if (target.view, target.sink) == (mend.view, mend.sink):
                return target, sink
        raise OperatorError(f"apply does not know {mend.view} in {mend.sink}", "is its view file the same there?")

    def _record(self, target: Target, sink: Sink, position: Position) -> None:
        """Until the ledger names the new version, queries read the former one."""
        state = self._ledger.read()
        if state is not None and isinstance(sink, DeltaSink):
            rows = {row.name: row for row in recorded({target: sink}, {target: position})}
            self._confirm_owner()
            self._ledger.write(list({**state.rows, **rows}.values()))


def _schema(shape: Shape) -> StructType:
    found = DataType.fromDDL(ddl(shape))
    assert isinstance(found, StructType)
    return found


_Row = tuple[str | None, ...]


def _portions(rows: Sequence[_Row], gone: Sequence[_Row]) -> Iterator[tuple[list[_Row], list[_Row]]]:
    for some in _some(rows):
        yield some, []
    for some in _some(gone):
        yield [], some


def _some(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, MEND_KEYS_MAX)):
        yield some
