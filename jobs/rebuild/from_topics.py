"""What a query reads as of one position, from the topics alone: no Delta table has a part in it.

In: ranges of topics from offset zero, the views' declarations. Out: frames of tables, of row-wise views and of queries,
each evaluated in full. Keeps true: a row that a mirror lacks since a value fits no type is lacking here as well;
nothing is known of a group's rows in the mirrors, which may be wrong where these rows are not.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cdc.settings import Settings
from jobs.batch import Task
from jobs.changes import Changes, read_changes
from jobs.pipeline import Pipeline
from jobs.rebuild.answers import Answers
from jobs.unfit import Watch, deleted, refused_by
from jobs.view import view_changes
from sinks.delta.literals import quoted
from sinks.protocol import OP, UPSERT
from sinks.spec import Kind, ViewSpec


class TopicRelations:
    """The relations of one pipeline; `release` frees what was read."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        pipeline: Pipeline,
        ranges: Mapping[str, Task],
        watch: Watch,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._pipeline = pipeline
        self._ranges = ranges
        self._watch = watch
        self._changes: dict[str, Changes] = {}
        self._answers = Answers(spark)

    def answer(self, spec: ViewSpec) -> DataFrame:
        """All rows of a query."""
        return self._answers.answer(spec, self.rows, is_live=False)

    def rows(self, name: str) -> DataFrame:
        """All rows of a relation."""
        spec = self._pipeline.specs[name]
        if spec.kind is Kind.QUERY:
            return self.answer(spec)
        changes = self._read(spec)
        rows = view_changes(deleted(changes.frame, refused_by(spec, changes.unfit)), spec)
        return rows.where(F.col(OP) == UPSERT).select(*map(quoted, spec.columns))

    def release(self) -> None:
        """Free the memory."""
        for changes in self._changes.values():
            changes.release()
        self._answers.release()

    def _read(self, spec: ViewSpec) -> Changes:
        whose = spec.schema, spec.table
        table = next(each for each in self._pipeline.tables.values() if (each.schema, each.table) == whose)
        found = self._changes.get(table.topic)
        if found is None:
            task = self._ranges[table.topic]
            lsns = task.floor_lsn, task.position.lsn
            offsets = task.start, task.end
            found = read_changes(self._spark, table, self._settings.kafka, offsets, lsns, self._watch)
            self._changes[table.topic] = found
        return found
