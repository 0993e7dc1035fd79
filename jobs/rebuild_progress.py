"""How far the rebuilds of a batch are, told to those who asked for them.

In: the batch's tasks as they end, and Spark's running stages. Out: an answer twice a second, from 0 to 1. A stage's
share is a guess, since Spark does not know its later stages yet; the sinks that are done are counted exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final

from pyspark.sql import SparkSession

from jobs.batch import Target, Task
from jobs.control import ControlServer, State

_EVERY_S: Final = 0.5


class RebuildProgress:
    """Use in a `with` around the batch; `ended` is called for each target that is done."""

    def __init__(
        self, control: ControlServer, spark: SparkSession, rebuild: Mapping[str, str], tasks: Sequence[Task]
    ) -> None:
        self._control = control
        self._tracker = spark.sparkContext.statusTracker()
        self._rebuild = rebuild
        self._wanted = {task.target for task in tasks if task.target.view in rebuild.values()}
        self._ended: set[Target] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="rebuild-progress", daemon=True)

    def __enter__(self) -> RebuildProgress:
        if self._rebuild:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        if self._rebuild:
            self._thread.join()

    def ended(self, target: Target) -> None:
        """One target is done."""
        self._ended.add(target)

    def _tell(self) -> None:
        told = 0.0
        while True:
            told = max(told, self._fraction())
            for request in self._rebuild:
                self._control.answer(request, State.RUNNING, progress=told)
            if self._stop.wait(_EVERY_S):
                return

    def _fraction(self) -> float:
        if not self._wanted:
            return 0.0
        done = len(self._ended & self._wanted)
        return min(0.99, (done + self._stages() * (done < len(self._wanted))) / len(self._wanted))

    def _stages(self) -> float:
        """The share of running stages' tasks that are complete."""
        infos = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        tasks = sum(info.numTasks for info in infos if info is not None)
        complete = sum(info.numCompletedTasks for info in infos if info is not None)
        return complete / tasks if tasks else 0.0
