"""The command itself, with a line to stderr whenever a phase of apply begins or ends; tables are tidied often.

In: the command's words. Out: lines `@begin <phase> <what>` and `@end ...`, so that a kill is known by what it hit.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any, Final

import sinks.delta.upkeep
from cdc.cli.app import main
from jobs.ledger import Ledger
from jobs.mend import SinkMender
from jobs.rebuild.loading import Loader
from jobs.refresh.refresher import Refresher
from jobs.tasks import TaskRunner
from sinks.cache.generations import Generations as CacheGenerations
from sinks.cache.sink import CacheSink
from sinks.delta import DeltaSink
from sinks.delta.layout import Limits
from sinks.delta.upkeep import Upkeep
from sinks.search.generations import Generations as SearchGenerations
from sinks.search.sink import SearchSink

TIDIED_EVERY: Final = 6
LIMITS: Final = Limits(small_max=4, sort_bytes_min=0, overlap_max=2.0, growth_min=1.0)

_numbers = itertools.count()


def marked(owner: Any, name: str, phase: str, what: Callable[..., str]) -> None:
    """Let every call of a method be told."""
    held = getattr(owner, name)

    def told(*given: Any, **named: Any) -> Any:
        mark = f"{phase} {what(*given)} #{next(_numbers)}"
        _say(f"@begin {mark}")
        try:
            return held(*given, **named)
        finally:
            _say(f"@end {mark}")

    setattr(owner, name, told)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _sink(sink: Any, *_: Any) -> str:
    return f"{sink._spec.name}/{sink.name}"


def _task(_: Any, task: Any) -> str:
    return f"{task.target.view}/{task.target.sink}"


def mark_all() -> None:
    """Every phase that the soak counts."""
    sinks.delta.upkeep.DUE_COMMITS = TIDIED_EVERY  # type: ignore[misc]
    sinks.delta.upkeep.LIMITS = LIMITS  # type: ignore[misc]
    marked(Upkeep, "_tidy", "maintenance", lambda _, table: table.table_uri.rstrip("/").rsplit("/", 1)[-1])
    marked(TaskRunner, "run", "batch", lambda _, tasks: str(len(tasks)))
    marked(TaskRunner, "_read_and_write", "mirror", lambda _, key, __: key.topic.rsplit(".", 1)[-1])
    marked(Refresher, "run", "refresh", _task)
    for sink in (DeltaSink, SearchSink, CacheSink):
        marked(sink, "replace", "rebuild", _sink)
        marked(sink, "write", "write", _sink)
        marked(sink, "adopt", "swap", _sink)
    marked(Loader, "run", "rebuild", lambda loader: loader._wanted.view)
    for generations in (SearchGenerations, CacheGenerations):
        marked(generations, "switch", "swap", lambda _, __, standing, *___: standing.view)
    marked(SinkMender, "__call__", "repair", lambda _, mend: f"{mend.view}/{mend.sink}")
    marked(Ledger, "write", "ledger", lambda _, rows: str(len(rows)))


if __name__ == "__main__":
    mark_all()
    main()
