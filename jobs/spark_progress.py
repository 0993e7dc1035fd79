"""How far Spark has got with a piece of work, for a progress bar.

In: a name, under which this thread's Spark jobs run. Out: tasks done of tasks known. A later job adds to these, so
the share may fall; whoever shows it keeps the highest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

_GROUP = "spark.jobGroup.id"


@dataclass(frozen=True, slots=True)
class TasksDone:
    """Tasks of the jobs that have begun."""

    done: int
    known: int

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.done / self.known if self.known else 0.0


@contextmanager
def job_group(spark: SparkSession, name: str) -> Iterator[None]:
    """This thread's jobs belong to `name` until the end of the block."""
    context = spark.sparkContext
    before = context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, name)
    try:
        yield
    finally:
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]  # null removes it


def tasks_done(spark: SparkSession, name: str) -> TasksDone:
    """How far the jobs of `name` are; asked from another thread."""
    tracker = spark.sparkContext.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(name))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = [info for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
    return TasksDone(sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos))
