"""What follows for a log from rows of a snapshot, truncates, and topics that are read again from their beginning.

In: the log as it is, and changes. Out: the rows to append. Keeps true: a row that says what is known already is no
change; a truncate ends every key that was there; read as a whole, the log ends in the topic's own state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from sinks.delta.literals import quoted
from sinks.history.columns import DELETED, ENDS, EVENT, KEPT, MOMENT, ORDINAL, PRODUCED, READ, TRUNCATED
from sinks.protocol import DELETE, LSN, OP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBSERVED: Final = 0
"""The ordinal of what was not a change in the log, but found in a snapshot."""

_NEW, _SPAN, _SAME, _LIVE = "__new", "__span", "__same", "__live"
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Continued:
    """Rows to append; `gap_lsn` is where the last one lies before which changes may be missing, if any is so."""

    rows: DataFrame
    gap_lsn: int | None = None


@dataclass(frozen=True, slots=True)
class Correction:
    """With which ordinal and time the log is brought to the topic's state, right before `lsn`."""

    lsn: int
    ordinal: int
    source_ts_us: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table's columns and those of its key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


def as_log(changes: DataFrame) -> DataFrame:
    """The changes as rows of the log; one whose values fit no type is a delete there."""
    from pyspark.sql import functions as F  # noqa: N812

    unfit = (F.col(OP) == DELETE) & ~F.col(EVENT).isin(*ENDS)
    return changes.withColumn(OP, F.when(unfit, F.lit(DELETED)).otherwise(F.col(EVENT)))


def begun(changes: DataFrame, table: Table, correction: Correction | None = None) -> DataFrame:
    """The table's rows as the topic has them, each with the position of its last change, or all with this one."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = as_log(changes)
    voids = rows.where(F.col(OP) == TRUNCATED).agg(F.max(F.struct(LSN, ORDINAL))).collect()[0][0]
    live = newest_rows(rows.where(F.col(OP) != TRUNCATED), table, tuple(voids) if voids else None)
    place = {} if correction is None else _place_of(correction)
    return live.withColumns({OP: F.lit(READ), **place})


def continued(
    log: DataFrame, changes: DataFrame, table: Table, low_lsn: int, oldest_ms: int, correction: Correction | None
) -> Continued:
    """What to append to a log that stands at `low_lsn`; with a `correction`, the changes are the whole topic."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = as_log(changes)
    marks = rows.where(F.col(OP) == TRUNCATED).groupBy(LSN, ORDINAL).agg(F.unix_micros(F.max(MOMENT))).collect()
    truncates = sorted((row[0], row[1], row[2]) for row in marks if row[1] != OBSERVED and row[0] >= low_lsn)
    again = any(row[1] == OBSERVED and row[0] >= low_lsn for row in marks)
    fresh = rows.where((F.col(OP) != TRUNCATED) & (F.col(LSN) >= low_lsn))
    known = newest_rows(log, table, None)
    if not truncates and correction is None:
        known = known.join(fresh.select(*map(quoted, table.key)).distinct(), list(table.key), "left_semi")
    line = _in_line(known, fresh, table, [(lsn, ordinal) for lsn, ordinal, _ in truncates]).persist()
    try:
        appended = [line.where(F.col(_NEW) & ~F.col(_SAME))]
        if truncates:
            appended.append(_truncated(line, table, truncates))
        corrected = False
        if correction is not None:
            last = line.where(F.col(_SPAN) == len(truncates))
            void = max(((row[0], row[1]) for row in marks), default=None)
            theirs = newest_rows(rows.where(F.col(OP) != TRUNCATED), table, void)
            appended.append(_corrected(last, theirs, table, correction).localCheckpoint())
            corrected = bool(appended[-1].limit(1).collect())
        chosen = [frame.select(*map(quoted, (*table.columns, *KEPT))) for frame in appended]
        result = reduce(lambda one, other: one.unionByName(other), chosen).localCheckpoint()
    finally:
        line.unpersist()
    gap_lsn = (
        correction.lsn - 1 if correction is not None and corrected else _gap(result, fresh, oldest_ms, again=again)
    )
    return Continued(result, gap_lsn)


def newest_rows(rows: DataFrame, table: Table, void: Place | None) -> DataFrame:
    """The newest row of each key that is there, of those from this place on."""
    from pyspark.sql import functions as F  # noqa: N812

    shown = [name for name in (*table.columns, *KEPT) if name in rows.columns]
    place = F.struct(LSN, ORDINAL)
    newest = F.max_by(F.struct(*map(quoted, shown)), place).alias("newest")
    if void is not None:
        rows = rows.where(place >= _place(*void))
    return rows.groupBy(*map(quoted, table.key)).agg(newest).select("newest.*").where(~F.col(OP).isin(*ENDS))


def _in_line(known: DataFrame, fresh: DataFrame, table: Table, truncates: Sequence[Place]) -> DataFrame:
    """What was known and what is new, each with the number of truncates before it, and whether it says nothing new."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    columns = [F.col(quoted(name)) for name in (*table.columns, *KEPT)]
    new = fresh.select(*columns, F.lit(True).alias(_NEW))
    # A column that the log does not have yet was null.
    line = new.unionByName(known.withColumn(_NEW, F.lit(False)), allowMissingColumns=True)
    place = F.struct(LSN, ORDINAL)
    before = [F.when(place >= _place(*truncate), 1).otherwise(0) for truncate in truncates]
    line = line.withColumn(_SPAN, reduce(lambda one, other: one + other, before, F.lit(0)))
    order = Window.partitionBy(*map(quoted, table.key), _SPAN).orderBy(LSN, ORDINAL)
    values = _values(line, table)
    was_there = F.coalesce(~F.lag(OP).over(order).isin(*ENDS), F.lit(False))
    same = F.when(F.col(OP).isin(*ENDS), ~was_there).otherwise(was_there & F.lag(values).over(order).eqNullSafe(values))
    last = F.lead(OP).over(order).isNull()
    return line.withColumns(
        {_SAME: (F.col(ORDINAL) == OBSERVED) & same, _LIVE: last & ~F.col(OP).isin(*ENDS)},
    )


def _truncated(line: DataFrame, table: Table, truncates: Sequence[tuple[int, int, int]]) -> DataFrame:
    """The end of every key that was there when a truncate came."""
    from pyspark.sql import functions as F  # noqa: N812

    ended = line.where(F.col(_LIVE) & (F.col(_SPAN) < len(truncates)))
    parts = []
    for at, (lsn, ordinal, us) in enumerate(truncates):
        place = {LSN: F.lit(lsn).cast("bigint"), ORDINAL: F.lit(ordinal).cast("bigint")}
        end = {OP: F.lit(TRUNCATED), **place, MOMENT: F.timestamp_micros(F.lit(us))}
        parts.append(_keys_alone(ended.where(F.col(_SPAN) == at), table).withColumns(end))
    return reduce(lambda one, other: one.unionByName(other), parts)


def _corrected(line: DataFrame, theirs: DataFrame, table: Table, correction: Correction) -> DataFrame:
    """What makes the end of the log the topic's state: nothing, where nothing was missed."""
    from pyspark.sql import functions as F  # noqa: N812

    ours = line.where(F.col(_LIVE))
    key = list(table.key)
    place = _place_of(correction)
    held = ours.select(*map(quoted, key), _values(ours, table).alias(_SAME))
    wanted = theirs.join(held, key, "left").where(~F.col(_SAME).eqNullSafe(_values(theirs, table)))
    gone = _keys_alone(ours.join(theirs.select(*map(quoted, key)), key, "left_anti"), table)
    columns = [*map(quoted, (*table.columns, *KEPT))]
    return (
        wanted.withColumns({OP: F.lit(READ), **place})
        .select(*columns)
        .unionByName(gone.withColumns({OP: F.lit(DELETED), **place}).select(*columns))
    )


def _gap(result: DataFrame, fresh: DataFrame, oldest_ms: int, *, again: bool) -> int | None:
    """The last change before which others may be missing: found in a snapshot, or read so late that compaction came."""
    from pyspark.sql import functions as F  # noqa: N812

    found: list[int | None] = [
        result.where(F.col(ORDINAL) == OBSERVED).agg(F.max(LSN)).collect()[0][0],
        fresh.where(F.col(PRODUCED) < oldest_ms).agg(F.max(LSN)).collect()[0][0],
    ]
    if again:
        found.append(fresh.where(F.col(ORDINAL) == OBSERVED).agg(F.max(LSN)).collect()[0][0])
    return max((lsn for lsn in found if lsn is not None), default=None)


def _place_of(correction: Correction) -> dict[str, Column]:
    from pyspark.sql import functions as F  # noqa: N812

    return {
        LSN: F.lit(correction.lsn - 1).cast("bigint"),
        ORDINAL: F.lit(correction.ordinal).cast("bigint"),
        MOMENT: F.timestamp_micros(F.lit(correction.source_ts_us)),
    }


def _keys_alone(rows: DataFrame, table: Table) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    others = [name for name in table.columns if name not in table.key]
    return rows.withColumns({name: F.lit(None).cast(rows.schema[name].dataType) for name in others}) if others else rows


def _values(rows: DataFrame, table: Table) -> Column:
    """A row as one value that is equal only where it would be printed equally: to Spark, -0.0 is 0.0."""
    from pyspark.sql import functions as F  # noqa: N812

    def printed(name: str) -> Column:
        column = F.col(quoted(name))
        return column.cast("string") if rows.schema[name].dataType.simpleString() in ("float", "double") else column

    return F.struct(*(printed(name).alias(f"c{at}") for at, name in enumerate(table.columns)))


def _place(lsn: int, ordinal: int) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.struct(F.lit(lsn).cast("bigint"), F.lit(ordinal).cast("bigint"))
