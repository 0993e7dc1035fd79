"""A log's old changes folded into the state that they led to: how retention is kept.

In: a log, and the time before which nobody needs to look back. Out: one commit that leaves, of what lies before that
time, the newest row of each key that was there. Keeps true: every state that can still be told stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sinks.history.columns import KEPT, MOMENT
from sinks.history.reach import Reach
from sinks.history.reconcile import Table, newest_rows
from sinks.protocol import LSN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.delta.commit import Commit

OVERDUE_PARTS: Final = 8
"""A log is folded when it is longer than asked for by this part of it: folding rewrites the state each time."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What stays of the rows before `lsn`, and how many of them go."""

    lsn: int
    rows: DataFrame
    gone: int


def is_due(begin_us: int, now_us: int, keep_us: int) -> bool:
    """Whether a log that begins there is long enough to be worth it."""
    return now_us - keep_us - begin_us > keep_us // OVERDUE_PARTS


def folded(log: DataFrame, reach: Reach, position_lsn: int, horizon_us: int) -> Folded:
    """The log before the first change that committed after the horizon."""
    from pyspark.sql import functions as F  # noqa: N812

    later = F.col(MOMENT) > F.timestamp_micros(F.lit(horizon_us))
    first: int | None = log.where(later).agg(F.min(LSN)).collect()[0][0]
    lsn = position_lsn if first is None else min(first, position_lsn)
    before = log.where(F.col(LSN) < lsn)
    shape = reach.shape_at(lsn)
    every = Table(tuple(name for name in log.columns if name not in KEPT), shape.key)
    rows = newest_rows(before.where(F.col(LSN) >= shape.since_lsn), every, None).persist()
    return Folded(lsn, rows, before.count() - rows.count())


def fold(found: Folded, commit: Commit) -> None:
    """Replace them, in one commit."""
    options = {**commit.options, "replaceWhere": f"`{LSN}` < {found.lsn}"}
    found.rows.sortWithinPartitions(LSN).write.format("delta").mode("overwrite").options(**options).save(commit.path)
