"""The command itself, with a line to stderr whenever a phase of apply begins or ends; tables are tidied often.

In: the command's words, and in the file that KILL_ORDER names a phase and a delay in seconds. Out: lines
`@begin <phase> <what> #n` and `@end <phase> <what> #n <seconds>`; SIGKILL that long after the phase has begun.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.table import TableOptimizer

import sinks.delta.marked
import sinks.delta.upkeep
from cdc.cli.app import main
from jobs.ledger import Ledger
from jobs.mend import SinkMender
from jobs.rebuild.loading import Loader
from jobs.rebuild.rebuilds import Rebuilds
from jobs.rebuild.run import RebuildRun
from jobs.refresh.refresher import Refresher
from jobs.tasks import TaskRunner
from jobs.twins import is_twin
from sinks.cache.sink import CacheSink
from sinks.delta import DeltaSink
from sinks.delta.layout import Limits
from sinks.delta.upkeep import Upkeep
from sinks.search.sink import SearchSink

TIDIED_EVERY: Final = 6
LIMITS: Final = Limits(small_max=4, sort_bytes_min=0, overlap_max=2.0, growth_min=1.0)
ORDER: Final = "KILL_ORDER"
_LOOK_S: Final = 0.05

_numbers = itertools.count()
_order: tuple[str, float] | None = None


def marked(owner: Any, name: str, phase: str | Callable[..., str], what: Callable[..., str]) -> None:
    """Let every call of a method be told."""
    held = getattr(owner, name)

    def told(*given: Any, **named: Any) -> Any:
        called = phase if isinstance(phase, str) else phase(*given)
        mark = f"{called} {what(*given)} #{next(_numbers)}"
        _say(f"@begin {mark}")
        if _order is not None and _order[0] == called:
            threading.Timer(_order[1], os.kill, (os.getpid(), signal.SIGKILL)).start()
        began_s = time.monotonic()
        try:
            return held(*given, **named)
        finally:
            _say(f"@end {mark} {time.monotonic() - began_s:.3f}")

    setattr(owner, name, told)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _listen(order: Path) -> None:
    """Until there is one."""
    global _order
    while not order.exists():
        time.sleep(_LOOK_S)
    phase, delay_s = order.read_text().split()
    order.unlink()
    _order = phase, float(delay_s)


def _sink(sink: Any, *_: Any) -> str:
    return f"{sink._spec.name}/{sink.name}"


def _task(_: Any, task: Any) -> str:
    return f"{task.target.view}/{task.target.sink}"


def _batch(_: Any, tasks: Collection[Any]) -> str:
    return "catch-up" if any(is_twin(task.target) for task in tasks) else "batch"


def _table(table: DeltaTable) -> str:
    return table.table_uri.rstrip("/").rsplit("/", 1)[-1]


def mark_all() -> None:
    """Every phase that the soak counts."""
    sinks.delta.upkeep.DUE_COMMITS = TIDIED_EVERY  # type: ignore[misc]
    sinks.delta.marked.TABLE_BYTES_MIN = 0  # type: ignore[misc]
    sinks.delta.upkeep.LIMITS = LIMITS  # type: ignore[misc]
    marked(Upkeep, "_tidy", "tidy", lambda _, table: _table(table))
    for name, phase in (("compact", "compact"), ("z_order", "sort")):
        marked(TableOptimizer, name, phase, lambda optimizer, *_: _table(optimizer.table))
    for name, phase in (("vacuum", "vacuum"), ("create_checkpoint", "checkpoint"), ("cleanup_metadata", "cleanup")):
        marked(DeltaTable, name, phase, lambda table, *_: _table(table))
    marked(TaskRunner, "run", _batch, lambda _, tasks: str(len(tasks)))
    marked(TaskRunner, "_read_and_write", "mirror", lambda _, key, __: key.topic.rsplit(".", 1)[-1])
    marked(Refresher, "run", "refresh", _task)
    for sink in (DeltaSink, SearchSink, CacheSink):
        for name in ("replace", "write", "mend"):
            marked(sink, name, f"{name}-{sink.name}", _sink)
        for name in ("adopt", "supersede"):
            marked(sink, name, f"swap-{sink.name}", _sink)
    marked(Loader, "run", "load", lambda loader: "+".join(loader._wanted.views))
    marked(RebuildRun, "_prove", "gate", lambda run, _: "+".join(run.wish.views))
    marked(Rebuilds, "swap", "swap", lambda _, effect: str(len(effect.twins)))
    marked(SinkMender, "__call__", "repair", lambda _, mend: f"{mend.view}/{mend.sink}")
    marked(Ledger, "write", "ledger", lambda _, rows: str(len(rows)))


if __name__ == "__main__":
    mark_all()
    if ORDER in os.environ:
        threading.Thread(target=_listen, args=(Path(os.environ[ORDER]),), daemon=True).start()
    main()
