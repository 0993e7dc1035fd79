"""One table's changes as a Delta table that is only appended to.

In: every change of a range (jobs.every_change). Out: one commit per batch, which carries the changes and the position.
Keeps true: a change stands there once; the newest row of each key is the mirror's; what may be missing is a gap in
its Reach, and is never told as if it were known.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import OperatorError
from cdc.lsn import format_lsn, parse_lsn
from cdc.settings import Settings
from sinks.delta import DeltaSink
from sinks.delta.commit import Commit, add_columns, enable_types, overwrite
from sinks.delta.literals import quoted
from sinks.delta.log import TableState, rows_written, selected_rows
from sinks.delta.upkeep import keep_up
from sinks.history import append
from sinks.history.columns import EVENT, FOLDER, HISTORY, KEPT, MOMENT, ORDINAL, PRODUCED, READ, TRUNCATED
from sinks.history.reach import Reach, Shape, parse_reach
from sinks.history.reconcile import Continued, Correction, Table, as_log, begun, continued
from sinks.history.sql import state as state_sql
from sinks.protocol import DELETE, LSN, OP, Position, Written
from sinks.spec import SinkOptions, ViewSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LSN_MAX: Final = (1 << 63) - 1
COMPACTION_LAG_MS: Final = 3_600_000
"""Capture's topics: of records older than this when they are read, compaction may have taken some."""


class HistorySink(DeltaSink):
    """The log under `<delta.path>/<pipeline>/_history/<schema.table>`; its position is kept as any Delta table's."""

    name = HISTORY

    def __init__(self, settings: Settings, spec: ViewSpec, option: SinkOptions) -> None:
        super().__init__(settings.delta, settings.pipeline, replace(spec, name=f"{FOLDER}/{spec.name}"))
        self._table = Table(spec.columns, spec.key)
        self._shape = Shape(parse_lsn(option.options["shape_lsn"]), spec.columns)

    def write(self, changes: DataFrame, position: Position) -> Written:
        """Append the changes and move to `position` in one commit."""
        state = self._required()
        assert state.stamp is not None
        if state.stamp.position.lsn >= position.lsn:
            return Written()
        from sinks.delta.failures import translated

        with translated(self._doing):
            few = append.few(changes)
            if few is not None and append.is_plain(few):
                return self._append_few(few, changes, state, position)
            if few is None and not _has_states(changes):
                return self._append(Continued(as_log(changes), _aged(changes)), state, position)
            return self._append(self._continued(changes, state, position, whole=False), state, position)

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
            return self._append(self._continued(rows, state, position, whole=True), state, position)

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
            return self._append(Continued(rows.select(*self._columns())), state, position)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The newest state: what the mirror must hold."""
        newest = state_sql("rows", self._spec.key, self._spec.columns, LSN_MAX)
        return selected_rows(self._path, self._options, newest)

    def reach(self) -> Reach | None:
        """How far the log goes; None without one."""
        state = self._state()
        return parse_reach(state.stamp.history) if state is not None and state.stamp is not None else None

    def _begin(self, rows: DataFrame, state: TableState | None, position: Position) -> Written:
        """A new log: the table as it is, each row with the position of its last change."""
        reach = Reach(self._spec.key, (self._shape,), position.lsn, position.source_ts_us)
        first = begun(rows, self._table).select(*map(quoted, self._columns()))
        commit = self._stamped(first, state, time.time_ns() // 1_000_000, position, reach)
        overwrite(first, commit, self._spec.key)
        self._require_made(commit)
        return Written(upserts=rows_written(self._path, self._options))

    def _continued(self, rows: DataFrame, state: TableState, position: Position, *, whole: bool) -> Continued:
        assert state.stamp is not None
        log = rows.sparkSession.read.format("delta").option("versionAsOf", str(state.version)).load(self._path)
        correction = Correction(position.lsn, state.turn + 1, position.source_ts_us) if whole else None
        return continued(log, rows, self._table, state.stamp.position.lsn, _oldest_ms(), correction)

    def _append_few(self, few: Any, changes: DataFrame, state: TableState, position: Position) -> Written:
        """A small batch, by delta-rs."""
        found = Continued(changes, append.aged(few, _oldest_ms()))
        commit = self._moved(changes, found, state, position)
        self._evolve(as_log(changes), commit, state)
        append.append_directly(append.log_rows(few, self._columns()), commit, self._options)
        return self._appended(commit, state, append.counted(few))

    def _append(self, found: Continued, state: TableState, position: Position) -> Written:
        rows = found.rows.select(*map(quoted, self._columns())).persist()
        try:
            counts = append.counted_by_spark(rows)
            commit = self._moved(rows, found, state, position)
            self._evolve(rows, commit, state)
            append.append_by_spark(rows, commit)
            return self._appended(commit, state, counts)
        finally:
            rows.unpersist()

    def _appended(self, commit: Commit, state: TableState, written: Written) -> Written:
        self._require_made(commit)
        keep_up(self._path, self._options, state.version, state.version + 1)
        return written

    def _moved(self, rows: DataFrame, found: Continued, state: TableState, position: Position) -> Commit:
        assert state.stamp is not None
        reach = parse_reach(state.stamp.history).with_shape(self._spec.key, self._shape)
        if found.gap_lsn is not None:
            reach = reach.with_gap(state.stamp.position.lsn, min(found.gap_lsn + 1, position.lsn))
        return self._stamped(rows, state, state.stamp.generation, position, reach)

    def _stamped(
        self, rows: DataFrame, state: TableState | None, generation: int, position: Position, reach: Reach
    ) -> Commit:
        commit = self._commit(rows, state, generation, position)
        return replace(commit, stamp=replace(commit.stamp, history=reach.fields()))

    def _evolve(self, rows: DataFrame, commit: Commit, state: TableState) -> None:
        enable_types(rows, commit, state.features)
        # OP is a column here, and not one of the changes' own.
        add_columns(rows.drop(OP), commit, state.types)

    def _columns(self) -> tuple[str, ...]:
        return (*self._spec.columns, *KEPT)


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
