"""One table's changes as a Delta table that is only appended to.

In: every change of a range (jobs.every_change). Out: one commit per batch, which carries the changes and the position.
Keeps true: a change stands there once; the newest row of each key is the mirror's; what may be missing is a gap in
its Reach, and is never told as if it were known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import OperatorError
from cdc.log import get
from cdc.lsn import format_lsn, parse_lsn
from cdc.settings import Settings
from sinks.delta import DeltaSink
from sinks.delta.commit import Commit, add_columns, enable_types, overwrite
from sinks.delta.literals import quoted
from sinks.delta.log import TableState, bytes_of, rows_of, rows_written, selected_rows
from sinks.delta.opened import answer
from sinks.delta.small import few_rows
from sinks.history import append
from sinks.history.columns import EVENT, FOLDER, HISTORY, KEPT, MOMENT, ORDINAL, PRODUCED, READ, TRUNCATED
from sinks.history.folding import fold, folded, is_due
from sinks.history.reach import Reach, Shape, parse_reach, stored_as
from sinks.history.reconcile import Continued, Correction, Table, as_log, begun, continued
from sinks.history.sql import state as state_sql
from sinks.protocol import DELETE, LSN, OP, Position, Written
from sinks.spec import SinkOptions, ViewSpec
from sinks.standing import lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = get(__name__)

LSN_MAX: Final = (1 << 63) - 1
COMPACTION_LAG_MS: Final = 3_600_000
"""Capture's topics: of records older than this when they are read, compaction may have taken some."""


class HistorySink(DeltaSink):
    """The log under `<delta.path>/<pipeline>/_history/<schema.table>`; its position is kept as any Delta table's."""

    name = HISTORY

    may_mark = False

    def __init__(self, settings: Settings, spec: ViewSpec, option: SinkOptions) -> None:
        super().__init__(settings.delta, settings.pipeline, replace(spec, name=f"{FOLDER}/{spec.name}"))
        self._keep_us = settings.history.keep_us
        self._looked_us = 0
        self._table = Table(spec.columns, spec.key)
        self._shape_lsn = parse_lsn(option.options["shape_lsn"])

    def write(self, changes: DataFrame, position: Position) -> Written:
        """Append the changes and move to `position` in one commit."""
        state = self._required()
        assert state.stamp is not None
        if state.stamp.position.lsn >= position.lsn:
            return Written()
        from sinks.delta.failures import translated

        with translated(self._doing):
            written = self._written(changes, state, position)
            self._fold_when_due(position)
            return written

    def advance(self, position: Position) -> None:
        """Nothing but what time asks for: the ledger vouches for the version that is there."""
        from sinks.delta.failures import translated

        with translated(self._doing):
            self._fold_when_due(position)

    def _written(self, changes: DataFrame, state: TableState, position: Position) -> Written:
        few = few_rows(changes)
        if few is not None and append.is_plain(few):
            return self._append_few(few, changes, state, position)
        if few is None and not _has_states(changes):
            return self._append(Continued(as_log(changes), _aged(changes)), state, position, _reach(state))
        return self._append(self._continued(changes, state, None), state, position, _reach(state))

    def replace(self, rows: DataFrame, position: Position) -> Written:
        """Bring the log to what all of the topic says; one that is there goes on, since it has what the topic lost."""
        from sinks.delta.failures import translated

        state = self._state()
        self._located.require(_known(state))
        with translated(self._doing):
            if state is None or state.stamp is None:
                return self._begin(rows, state, position)
            if state.stamp.position.lsn > position.lsn:
                raise _ahead(self._spec.name, state.stamp.position, position)
            reach, correction = _reach(state), Correction(position.lsn, state.turn + 1, position.source_ts_us)
            shape = self._shape_of(rows, state, reach, position)
            if shape.since_lsn == reach.shapes[-1].since_lsn:
                found = self._continued(rows, state, correction)
                if self._is_ours(state):
                    # The table is what it was, and yet all of it is to be read: something was missed, or may have been.
                    found = replace(found, gap_lsn=position.lsn - 1)
            else:
                found = Continued(begun(rows, self._table, correction), position.lsn - 1)
            return self._append(found, state, position, reach.with_shape(shape))

    def mend(self, changes: DataFrame, position: Position) -> Written:
        """Append what the keys are, right before the position."""
        from pyspark.sql import functions as F  # noqa: N812

        from sinks.delta.failures import translated

        state = self._required()
        with translated(self._doing):
            event = F.when(F.col(OP) == DELETE, F.lit(DELETE)).otherwise(F.lit(READ))
            rows = changes.withColumns(
                {
                    OP: event,
                    LSN: F.lit(position.lsn - 1).cast("bigint"),
                    ORDINAL: F.lit(state.turn + 1).cast("bigint"),
                    MOMENT: F.timestamp_micros(F.lit(position.source_ts_us)),
                }
            )
            return self._append(Continued(rows), state, position, _reach(state))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The newest state: what the mirror must hold."""
        return selected_rows(self._path, self._options, self._newest())

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        """The same of some keys."""
        return rows_of(self._path, self._options, self._spec.columns, keys, f"({self._newest()}) AS newest")

    def _newest(self) -> str:
        return state_sql("rows", _reach(self._there()).shapes[-1], LSN_MAX)

    def types(self) -> Mapping[str, str]:
        """As the log has them now."""
        state = self._there()
        return {name: state.types[stored] for name, stored in _reach(state).shapes[-1].stored.items()}

    def reach(self) -> tuple[Reach, int] | None:
        """How far the log goes, and the bytes that it takes; None without one."""
        state = self._state()
        if state is None or state.stamp is None:
            return None
        return _reach(state), answer(self._path, self._options, bytes_of)

    def _there(self) -> TableState:
        """The log as whoever reads finds it."""
        state = self._state()
        if state is None or state.stamp is None:
            raise lost("Delta", self._spec.name)
        return state

    def _fold_when_due(self, position: Position) -> None:
        """Let go of what is older than asked for; looked at once in a while of the source's time."""
        now_us = position.source_ts_us
        if not is_due(self._looked_us, now_us, self._keep_us):
            return
        self._looked_us = now_us - self._keep_us
        state = self._required()
        assert state.stamp is not None
        reach = _reach(state)
        if not is_due(reach.begin_us, now_us, self._keep_us):
            self._looked_us = reach.begin_us
            return
        from pyspark.sql import SparkSession

        log = self._log(SparkSession.builder.getOrCreate(), state)
        found = folded(log, reach, state.stamp.position.lsn, self._looked_us)
        try:
            if found.gone:
                moved = reach.beginning(found.lsn, self._looked_us)
                commit = self._stamped(found.rows, state, state.stamp.generation, position, moved)
                fold(found, commit)
                self._require_made(commit)
                self._upkeep.be_due()
        finally:
            found.rows.unpersist()
        _log.info("history folded", table=self._spec.name, before=format_lsn(found.lsn), rows=found.gone)

    def _log(self, spark: SparkSession, state: TableState) -> DataFrame:
        """The log at the version that was looked at."""
        return spark.read.format("delta").option("versionAsOf", str(state.version)).load(self._path)

    def _begin(self, rows: DataFrame, state: TableState | None, position: Position) -> Written:
        """A new log: the table as it is, each row with the position of its last change."""
        shape = Shape(self._shape_lsn, self._spec.key, self._spec.columns)
        reach = Reach((shape,), position.lsn, position.source_ts_us)
        first = _as_stored(begun(rows, self._table), shape)
        commit = self._stamped(first, state, time.time_ns() // 1_000_000, position, reach)
        overwrite(first, commit, self._spec.key)
        self._require_made(commit)
        return Written(upserts=rows_written(self._path, self._options))

    def _shape_of(self, rows: DataFrame, state: TableState, reach: Reach, position: Position) -> Shape:
        """The table's shape in the log; one whose rows can't be compared with older ones begins right here."""
        last = reach.shapes[-1]
        kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
        log = {name: kind for name, kind in state.types.items() if name not in KEPT}
        stored = {name: stored_as(name, kinds[name], log, last.columns) for name in self._spec.columns}
        key = tuple(stored[name] for name in self._spec.key)
        if key == last.key and all(last.stored.get(name, here) == here for name, here in stored.items()):
            return Shape(self._shape_lsn, key, tuple(stored.values()), last.since_lsn)
        return Shape(position.lsn - 1, key, tuple(stored.values()), position.lsn - 1)

    def _continued(self, rows: DataFrame, state: TableState, correction: Correction | None) -> Continued:
        assert state.stamp is not None
        shape, log = _reach(state).shapes[-1], self._log(rows.sparkSession, state)
        own = [log[quoted(here)].alias(name) for name, here in shape.stored.items()]
        log = log.where(log[LSN] >= shape.since_lsn).select(*own, *KEPT)
        return continued(log, rows, self._table, state.stamp.position.lsn, _oldest_ms(), correction)

    def _append_few(self, few: Any, changes: DataFrame, state: TableState, position: Position) -> Written:
        """A small batch, by delta-rs; the table has the shape that the log knows."""
        reach = self._moved(_reach(state), append.aged(few, _oldest_ms()), state, position)
        rows = append.log_rows(few, reach.shapes[-1].stored)
        commit = self._stamped(changes, state, state.stamp.generation if state.stamp else 0, position, reach)
        append.append_directly(rows, commit, self._options)
        return self._appended(commit, append.counted(few))

    def _append(self, found: Continued, state: TableState, position: Position, reach: Reach) -> Written:
        assert state.stamp is not None
        rows = _as_stored(found.rows, reach.shapes[-1]).persist()
        try:
            counts = append.counted_by_spark(rows)
            moved = self._moved(reach, found.gap_lsn, state, position)
            commit = self._stamped(rows, state, state.stamp.generation, position, moved)
            enable_types(rows, commit, state.features)
            # OP is a column here, and not one of the changes' own.
            add_columns(rows.drop(OP), commit, state.types)
            append.append_by_spark(rows, commit)
            return self._appended(commit, counts)
        finally:
            rows.unpersist()

    def _appended(self, commit: Commit, written: Written) -> Written:
        self._require_made(commit)
        return written

    def _moved(self, reach: Reach, gap_lsn: int | None, state: TableState, position: Position) -> Reach:
        assert state.stamp is not None
        if gap_lsn is None:
            return reach
        return reach.with_gap(state.stamp.position.lsn, min(gap_lsn + 1, position.lsn))

    def _stamped(
        self, rows: DataFrame, state: TableState | None, generation: int, position: Position, reach: Reach
    ) -> Commit:
        commit = self._commit(rows, state, generation, position)
        return replace(commit, stamp=replace(commit.stamp, history=reach.fields()))


def _reach(state: TableState) -> Reach:
    assert state.stamp is not None
    return parse_reach(state.stamp.history)


def _as_stored(rows: DataFrame, shape: Shape) -> DataFrame:
    """The rows with the log's names of the columns."""
    return rows.select(*(rows[quoted(name)].alias(here) for name, here in shape.stored.items()), *KEPT)


def _has_states(changes: DataFrame) -> bool:
    """Whether there are rows of a snapshot, or a truncate: what they mean follows from what was there before."""
    from pyspark.sql import functions as F  # noqa: N812

    return bool(changes.where(F.col(EVENT).isin(READ, TRUNCATED)).limit(1).collect())


def _aged(changes: DataFrame) -> int | None:
    """The LSN of the newest change that compaction had time to reach before it was read."""
    from pyspark.sql import functions as F  # noqa: N812

    newest: int | None = changes.where(F.col(PRODUCED) < _oldest_ms()).agg(F.max(LSN)).collect()[0][0]
    return newest


def _oldest_ms() -> int:
    return time.time_ns() // 1_000_000 - COMPACTION_LAG_MS


def _known(state: TableState | None) -> tuple[int, int] | None:
    return (state.stamp.generation, state.turn) if state is not None and state.stamp is not None else None


def _ahead(name: str, own: Position, position: Position) -> OperatorError:
    return OperatorError(
        f"the history {name} goes up to {format_lsn(own.lsn)}, past the topics at {format_lsn(position.lsn)}",
        "the topics were started over, so its positions mean nothing there: move its folder away, and a new one begins",
        code="HISTORY_AHEAD",
    )
