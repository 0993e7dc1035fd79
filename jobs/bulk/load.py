"""All rows of a mirror from its topic into a Delta table beside the live one, without Spark.

In: a task of the mirror, a table that no reader sees. Out: its rows there, at the task's position; or Unusual, and then
Spark loads it. Keeps true: what is put by on disk meanwhile is this load's own, and goes with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cdc.settings import Settings
from jobs.batch import Task
from jobs.bulk.read import read_rows
from jobs.tables import TableInfo
from sinks.delta import BesideDelta
from sinks.protocol import Written

FOLDER: Final = "load"


def load_mirror(
    settings: Settings, table: TableInfo, task: Task, sink: BesideDelta, on_read: Callable[[int], None]
) -> Written:
    """Its rows; `on_read` hears how many records more have been read, and may raise."""
    lsns = task.floor_lsn, task.position.lsn
    folder = _folder(settings) / sink.folder
    return sink.load(read_rows(table, settings.kafka, (task.start, task.end), lsns, on_read, folder), task.position)


def clear_loads(settings: Settings) -> None:
    """What a killed process has put by."""
    shutil.rmtree(_folder(settings), ignore_errors=True)


def _folder(settings: Settings) -> Path:
    return settings.data / FOLDER / settings.pipeline
