"""The three kinds of commit that the sink makes; each carries the view's stamp and its turn.

In: a frame and a Commit. Out: one Delta commit, or none when Delta has seen this turn before: commits of one
application are numbered, and Delta takes each number once, so nobody commits on what he has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import OperatorError
from sinks.delta.literals import keys_predicate, quoted, range_predicate
from sinks.delta.size import Batch
from sinks.delta.stamp import Stamp
from sinks.protocol import DELETE, OP, UPSERT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_FILE_MAX: Final = 100_000
"""Files are rewritten whole: a batch that changes a few neighbouring keys should not rewrite millions of rows."""
ROWS_PER_FILE_IN_FULL: Final = 1_000_000
"""Of what is computed in full instead of being compared: each file more costs its writer, a fifth in all at 100,000."""

NTZ_FEATURE: Final = "timestampNtz"

PROPERTIES: Final = {
    # Many small commits rewrite files again and again: what they replaced must not pile up for days, neither on the
    # disk nor, as tombstones, in every checkpoint.
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.enableDeletionVectors": "false",
    # A checkpoint costs as much as a batch does, while fifty small log files are read in milliseconds.
    "delta.checkpointInterval": "50",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Where to commit, and what the commit says about itself."""

    path: str
    stamp: Stamp
    app_id: str
    turn: int


@dataclass(frozen=True, slots=True)
class Commit(Mark):
    """The same for commits that Spark makes."""

    spark: SparkSession

    @property
    def options(self) -> dict[str, str]:
        """For a DataFrameWriter."""
        return {
            "userMetadata": self.stamp.to_json(),
            "txnAppId": self.app_id,
            "txnVersion": str(self.turn),
        }

    @property
    def conf(self) -> dict[str, str]:
        """The same for a MERGE, which only looks at its session."""
        options = self.options
        return {
            "spark.databricks.delta.commitInfo.userMetadata": options["userMetadata"],
            "spark.databricks.delta.write.txnAppId": options["txnAppId"],
            "spark.databricks.delta.write.txnVersion": options["txnVersion"],
        }


def overwrite(
    rows: DataFrame, commit: Commit, key: tuple[str, ...], properties: Mapping[str, str] = PROPERTIES
) -> None:
    """Make the rows the table, schema and all; without a key in the order in which they come, in larger files."""
    # Sorted files have narrow key ranges, so later batches find theirs by minimum and maximum.
    ordered = rows.sortWithinPartitions(*map(quoted, key)) if key else rows
    rows_per_file = ROWS_PER_FILE_MAX if key else ROWS_PER_FILE_IN_FULL
    options = {**properties, **commit.options, "overwriteSchema": "true", "maxRecordsPerFile": str(rows_per_file)}
    ordered.write.format("delta").mode("overwrite").options(**options).save(commit.path)


def replace_keys(rows: DataFrame, commit: Commit, batch: Batch) -> None:
    """Replace the rows of the batch's keys by its upserts."""
    from pyspark.sql import functions as F  # noqa: N812

    assert batch.keys is not None
    upserts = rows.where(F.col(OP) == UPSERT).drop(OP).coalesce(1)
    options = {**commit.options, "replaceWhere": keys_predicate(batch.key, batch.keys)}
    upserts.write.format("delta").mode("overwrite").options(**options).save(commit.path)


def merge(rows: DataFrame, commit: Commit, batch: Batch) -> None:
    """MERGE the batch by key, looking only at the range of its keys."""
    from delta import DeltaTable

    # A session of its own: its settings carry this commit's mark, and other tables are merged at the same time.
    session = commit.spark.newSession()
    for name, value in commit.conf.items():
        session.conf.set(name, value)
    values: dict[str, Any] = {quoted(name): f"s.{quoted(name)}" for name in rows.columns if name != OP}
    same = [f"t.{column.quoted} <=> s.{column.quoted}" for column in batch.key]
    condition = " AND ".join([*same, range_predicate("t", batch.key[0], batch.low, batch.high)])
    (
        DeltaTable.forPath(session, commit.path)
        .alias("t")
        .merge(rows.alias("s"), condition)
        .whenMatchedDelete(f"s.{OP} = '{DELETE}'")
        .whenMatchedUpdate(set=values)
        .whenNotMatchedInsert(f"s.{OP} = '{UPSERT}'", values)
        .execute()
    )


def enable_types(rows: DataFrame, commit: Commit, features: frozenset[str]) -> None:
    """A table that was made without timestamp_ntz takes such columns only after being told so, in whatever way."""
    needed = any(field.dataType.simpleString() == "timestamp_ntz" for field in rows.schema.fields)
    if needed and NTZ_FEATURE not in features:
        properties = f"('delta.feature.{NTZ_FEATURE}' = 'supported')"
        commit.spark.sql(f"ALTER TABLE delta.{quoted(commit.path)} SET TBLPROPERTIES {properties}")


def add_columns(rows: DataFrame, commit: Commit, known: Mapping[str, str]) -> None:
    """Columns that the table does not have yet, null in its present rows; a column never changes its type."""
    found = {field.name: field.dataType.simpleString() for field in rows.schema.fields if field.name != OP}
    for name, kind in found.items():
        if known.get(name, kind) != kind:
            message = f"view {commit.stamp.view}: column {name} was {known[name]} and is now {kind}"
            raise OperatorError(message, f"run: afterimage rebuild {commit.stamp.view}", code="VIEW_CHANGED")
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in found.items() if name not in known)
    if columns:
        commit.spark.sql(f"ALTER TABLE delta.{quoted(commit.path)} ADD COLUMNS ({columns})")
