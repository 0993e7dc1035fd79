"""Queries of rebuilds, evaluated in full over frames.

In: a query's declaration, the rows of what it reads. Out: a frame of all of its rows. Keeps true: the names under which
Spark finds these rows are of this load alone, since the live view is refreshed in the same session meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from jobs.twins import twin_name
from jobs.upkeep.refresh import plan_refresh
from jobs.upkeep.tables import State, Tables
from sinks.spec import ViewSpec


class Answers:
    """Of one load; `release` forgets the names."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._names: list[str] = []

    def answer(self, spec: ViewSpec, rows: Callable[[str], DataFrame], *, is_live: bool) -> DataFrame:
        """All rows of the query, where `rows` gives those of each relation that it reads.

        What is hidden is unknown unless these rows are those that are live: a repair may bring others back, and what is
        counted here would be counted twice.
        """
        tables = Tables(spec.relations, f"{twin_name(spec.name)}__")
        for relation in spec.relations:
            name = tables.name(relation, State.NOW)
            rows(relation).createOrReplaceTempView(name)
            self._names.append(name)
        found = self._spark.sql(plan_refresh(spec.plan, tables, spec.relations).full).toDF(*spec.stored)
        if is_live:
            return found
        unknown = {name: F.lit(None).cast(found.schema[name].dataType) for name in spec.hidden}
        return found.withColumns(unknown) if unknown else found

    def release(self) -> None:
        """Nobody asks for them any more."""
        for name in self._names:
            self._spark.catalog.dropTempView(name)
