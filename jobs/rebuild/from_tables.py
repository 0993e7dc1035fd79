"""What a query reads as of one position, from the tables that are live there, or are loaded with it.

In: the tables, and which rows of each are meant. Out: frames of queries, each evaluated in full. Keeps true: the rows
are those that a batch would have computed the view from; for a view that is to be made anew of the topics alone, as
whoever asks for a rebuild wants it, there is jobs.rebuild.from_topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from jobs.parts import session_for
from jobs.rebuild.answers import Answers
from jobs.refresh.read import rows_at
from sinks.delta import DeltaSink
from sinks.delta.held import Held
from sinks.delta.literals import quoted
from sinks.spec import ViewSpec


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A relation's table, and its rows that count."""

    spec: ViewSpec
    sink: DeltaSink
    held: Held


class TableRelations:
    """The relations of one query, by name; `release` forgets them."""

    def __init__(self, spark: SparkSession, tables: Mapping[str, HeldTable]) -> None:
        rows = sum(table.sink.size(table.held.version).rows for table in tables.values())
        self._spark = session_for(spark, rows)
        self._tables = tables
        self._answers = Answers(self._spark)

    def answer(self, spec: ViewSpec) -> DataFrame:
        """All rows of a query."""
        return self._answers.answer(spec, self._rows, is_live=True)

    def release(self) -> None:
        """Free what is kept for it."""
        self._answers.release()

    def _rows(self, name: str) -> DataFrame:
        table = self._tables[name]
        return rows_at(self._spark, table.sink.path, table.held).select(*map(quoted, table.spec.columns))
