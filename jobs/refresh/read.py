"""What queries read: of each table or view the columns that some query needs, and its rows at a version.

In: the readers' plans, a Delta table. Out: a ReadRelation, frames. Keeps true: no column is left out that a reader
names.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from jobs.plan.nodes import Scan
from jobs.plan.view import ViewPlan
from jobs.plan.walk import walk
from sinks.delta import DeltaSink
from sinks.delta.held import Held
from sinks.spec import ViewSpec


@dataclass
class ReadRelation:
    """One table or view that queries read; `columns` are those that they need."""

    spec: ViewSpec
    sink: DeltaSink
    columns: tuple[str, ...]

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while its images are made."""

    @property
    def types(self) -> dict[str, str]:
        """Spark's names of the columns' types."""
        known = self.sink.types()
        return {name: known[name] for name in self.columns}


def rows_at(spark: SparkSession, path: str, held: Held) -> DataFrame:
    """All rows of a version."""
    return spark.read.format("delta").option("versionAsOf", held.version).load(path)


def needed(readers: Iterable[ViewSpec]) -> dict[str, set[str]]:
    """Of each relation that a query reads, the columns that some query reads."""
    found: dict[str, set[str]] = {}
    for spec in readers:
        plan: ViewPlan | None = spec.plan
        for scan in walk(plan.root) if plan is not None else ():
            if isinstance(scan, Scan):
                found.setdefault(scan.relation, set()).update(scan.sources)
    return found
