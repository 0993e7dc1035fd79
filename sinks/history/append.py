"""Changes put at the end of a log, by delta-rs when they are few, else by Spark.

In: changes and a Commit. Out: one Delta commit with the stamp and the turn. Keeps true: delta-rs does not look at
turns, so they are compared first; any other commit on the version that was looked at is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sinks.delta.commit import Commit
from sinks.delta.direct import refused, taken_turn
from sinks.delta.small import count_of
from sinks.history.columns import ENDS, EVENT, KEPT, PRODUCED, READ, TRUNCATED
from sinks.protocol import DELETE, LSN, OP, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_plain(changes: Any) -> bool:
    """Whether every row says what happened, without a look at what was before."""
    return not {READ, TRUNCATED}.intersection(changes.column(EVENT).to_pylist())


def aged(changes: Any, oldest_ms: int) -> int | None:
    """The LSN of the newest change that reached Kafka before then."""
    pairs = zip(changes.column(PRODUCED).to_pylist(), changes.column(LSN).to_pylist(), strict=True)
    return max((lsn for produced, lsn in pairs if produced < oldest_ms), default=None)


def log_rows(changes: Any, stored: Mapping[str, str]) -> Any:
    """The changes as rows of the log, with its names; one whose values fit no type is a delete there."""
    import pyarrow as pa

    pairs = zip(changes.column(OP).to_pylist(), changes.column(EVENT).to_pylist(), strict=True)
    events = [DELETE if op == DELETE and event not in ENDS else event for op, event in pairs]
    at = changes.column_names.index(OP)
    chosen = changes.set_column(at, OP, pa.array(events, pa.string())).select([*stored, *KEPT])
    return chosen.rename_columns([*stored.values(), *KEPT])


def append_directly(rows: Any, commit: Commit, storage_options: Mapping[str, str]) -> None:
    """Append by delta-rs; columns of the log that the rows do not have are null."""
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import DeltaError

    table = DeltaTable(commit.path, storage_options=dict(storage_options) or None)
    properties = taken_turn(table, commit)
    try:
        write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
    except (DeltaError, OSError) as error:
        raise refused(commit.stamp.view, error) from None  # its message may quote a row


def append_by_spark(rows: DataFrame, commit: Commit) -> None:
    """Append by Spark, which passes over a turn that is taken."""
    ordered = rows.sortWithinPartitions(LSN)
    ordered.write.format("delta").mode("append").options(**commit.options).save(commit.path)


def counted(changes: Any) -> Written:
    """What the changes are."""
    deletes = count_of(changes, DELETE)
    return Written(changes.num_rows - deletes, deletes)


def counted_by_spark(rows: DataFrame) -> Written:
    """The same of rows of the log."""
    from pyspark.sql import functions as F  # noqa: N812

    total, deletes = rows.agg(F.count("*"), F.count_if(F.col(OP).isin(*ENDS))).collect()[0]
    return Written(total - deletes, deletes)
