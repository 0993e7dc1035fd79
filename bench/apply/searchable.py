"""From commit to searchable and to cached: a row-wise view in the index and in the cache, while its table is written.

In: the shared servers; an index and a cache of its own. Out: percentiles in seconds. A change counts as there when the
sink's position, which moves after the rows can be read, has passed its commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.apply.field import Field, field
from bench.apply.freshness import WARM_UP_S, Load, commits, percentile
from bench.apply.result import Figures, rounded
from bench.apply.sides import Ours
from bench.apply.works import memory
from bench.servers import Bench
from cdc.settings import Cache, Search
from cdc.stack import daemon
from cdc.stack.opensearch import OpenSearch
from cdc.stack.valkey import Valkey
from jobs.pipeline import load_pipeline
from sinks.protocol import Sink

VIEW = "-- sinks: search, cache\nSELECT id, customer, status, amount, mark, note FROM orders WHERE quantity >= 0"
PER_SECOND = 100
_LOOK_S = 0.01


def search_cache(bench: Bench, rows: int, seconds: float, repeats: int, *, target: str) -> Figures:
    """Ours alone: the recipe has neither an index nor a cache."""
    figures = Figures("s", target)
    with _stores(bench) as sections, field(bench, 1, rows, [Ours.name], **sections) as at:
        side = at.sides[0]
        sinks = load_pipeline(at.pipeline.settings).sinks
        found = {target.sink: sink for target, sink in sinks.items() if target.view == "some_orders"}
        waits: dict[str, list[list[float]]] = {name: [] for name in found}
        with memory(at, figures):
            for _ in range(repeats):
                side.go()
                for name, each in _waits(at, found, seconds).items():
                    waits[name].append(each)
                side.wait_for(at.ends())
                time.sleep(1)
                side.hold()
    p50 = {name: [percentile(turn, 50) for turn in turns] for name, turns in waits.items()}
    figures.ours = max(p50.values(), key=median)
    figures.more = {f"p50_{name}": [rounded(turn) for turn in turns] for name, turns in p50.items()}
    figures.more |= {f"p99_{name}": [rounded(percentile(turn, 99)) for turn in turns] for name, turns in waits.items()}
    return figures


def _waits(at: Field, sinks: dict[str, Sink], seconds: float) -> dict[str, list[float]]:
    table = at.tables[0]
    at.publish("SELECT 1")
    start = at.ends(table)[table]
    at.marks += 10_000_000
    stop = threading.Event()
    seen: dict[str, list[tuple[float, int]]] = {name: [] for name in sinks}
    watchers = [threading.Thread(target=_watch, args=(sink, seen[name], stop)) for name, sink in sinks.items()]
    with Load(at, PER_SECOND, at.marks, [table]) as load:
        for watcher in watchers:
            watcher.start()
        began = time.monotonic()
        time.sleep(WARM_UP_S + seconds)
    at.publish("SELECT 1")
    time.sleep(2)
    stop.set()
    for watcher in watchers:
        watcher.join()
    lsns = commits(at, table, start, at.ends(table)[table])
    marks = {lsns[mark]: when for mark, when in load.committed.items() if when > began + WARM_UP_S}
    return {name: [_wait(lsn, when, positions) for lsn, when in marks.items()] for name, positions in seen.items()}


def _wait(lsn: int, when: float, positions: list[tuple[float, int]]) -> float:
    return max(0.0, next(at for at, stands in positions if stands > lsn) - when)


def _watch(sink: Sink, seen: list[tuple[float, int]], stop: threading.Event) -> None:
    while not stop.wait(_LOOK_S):
        position = sink.position()
        at = time.monotonic()
        if position is not None and (not seen or position.lsn > seen[-1][1]):
            seen.append((at, position.lsn))


@contextmanager
def _stores(bench: Bench) -> Iterator[dict[str, Any]]:
    """Both, and a folder with the view."""
    index, cache = OpenSearch(bench.folder / "opensearch", port=0), Valkey(bench.folder / "valkey", port=0)
    try:
        searched, cached = daemon.start(index), daemon.start(cache)
        yield {
            "search": Search(url=f"http://{searched.address}"),
            "cache": Cache(url=f"redis://:{cached.password}@{cached.address}/0"),
            "views": _views(bench.folder / "views"),
        }
    finally:
        daemon.halt(cache)
        daemon.halt(index)


def _views(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "some_orders.sql").write_text(VIEW)
    return folder
