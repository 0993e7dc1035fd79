"""Readers of an index and a cache, as README.md and docs/SINKS.md have them read, while what they read is swapped."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import urllib3
from pyspark.sql import SparkSession

from cdc.stack.server import Endpoint
from sinks.protocol import UPSERT, SwappedSink
from tests.support.sinks import STORES, Store, View, at, cache_client
from tests.support.wait import wait_until

FORMER = View({"id": "bigint", "parent": "bigint", "mark": "bigint"}, name="shown")
OTHERWISE = View({"note": "string", "id": "bigint", "mark": "string", "parent": "bigint"}, name="shown")
"""A column more, another order, another type."""
KEYS = range(40)
PARENT = 7
SWAPS = 8
LOOKS_HELD = 10
LOOKS_BETWEEN = LOOKS_HELD + 2
Rows = list[dict[str, Any]]


class Reader(threading.Thread):
    """Looks again and again; with `held`, by the pointer that it found some looks ago."""

    def __init__(self, find: Callable[[], str], look: Callable[[str], Rows], held: int = 0) -> None:
        super().__init__(daemon=True)
        self._find, self._look, self._held = find, look, held
        self.seen: list[Rows] = []
        self.error: Exception | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            while not self.done.is_set():
                pointer, until = self._find(), len(self.seen) + self._held
                self.seen.append(self._look(pointer))
                while len(self.seen) <= until and not self.done.is_set():
                    self.seen.append(self._look(pointer))
        except Exception as error:  # noqa: BLE001 - whatever a reader sees
            self.error = error


@dataclass
class Bed:
    """A view in a store, and its readers."""

    store: Store
    readers: list[Reader]
    options: dict[str, str]

    def sink(self, view: View) -> SwappedSink:
        made = self.store.sink(view, **self.options)
        assert isinstance(made, SwappedSink)
        made.position()
        return made

    def frame(self, view: View, mark: int) -> Any:
        row = {"parent": PARENT, "note": f"n{mark}", "mark": mark if view.columns["mark"] == "bigint" else str(mark)}
        rows = [tuple({**row, "id": key}[name] for name in view.columns) for key in KEYS]
        return view.frame(self.store.spark, [(UPSERT, 10 * mark, each) for each in rows])

    def await_looks(self) -> None:
        """So that each reader has seen what is shown now, or fails."""
        wanted = [len(reader.seen) + LOOKS_BETWEEN for reader in self.readers]
        wait_until(
            lambda: all(
                len(reader.seen) >= count or reader.error
                for reader, count in zip(self.readers, wanted, strict=True)
            ),
            what="all readers to look",
        )  # fmt: skip


def by_entry(client: Any, pattern: str) -> Callable[[str], Rows]:
    """One call for each row, all with the same pointer."""
    return lambda pointer: [json.loads(client.get(pattern.format(g=pointer, key=key))) for key in KEYS]


def by_hash(client: Any, pattern: str) -> Callable[[str], Rows]:
    return lambda pointer: [client.hgetall(pattern.format(g=pointer, key=key)) for key in KEYS]


def by_list(client: Any, name: str) -> Callable[[str], Rows]:
    return lambda pointer: [json.loads(each) for each in client.hvals(name.format(g=pointer))]


def by_search(url: str) -> Callable[[str], Rows]:
    def look(_pointer: str) -> Rows:
        answer = urllib3.request("POST", f"{url}/_search", json={"size": 100, "query": {"match_all": {}}})
        return [hit["_source"] for hit in answer.json()["hits"]["hits"]]

    return look


@pytest.fixture(params=["cache", "cache-hash", "cache-list", "search"])
def bed(request: pytest.FixtureRequest, spark: SparkSession, pipeline_name: str) -> Iterator[Bed]:
    store = STORES[request.param.removesuffix("-list")](request, spark, pipeline_name)
    options = {"list": "parent"} if request.param == "cache-list" else {}
    if request.param == "search":
        reader = Reader(str, by_search(f"{store.settings.search.url}/{pipeline_name}-shown"))
        yield Bed(store, [reader], options)
        return
    server: Endpoint = request.getfixturevalue("valkey")
    with cache_client(server) as client:
        look = {
            "cache": by_entry(client, f"{pipeline_name}:shown:{{g}}:{{key}}"),
            "cache-hash": by_hash(client, f"shown/{pipeline_name}/{{g}}/{{key}}"),
            "cache-list": by_list(client, f"afterimage:list:{pipeline_name}:shown:{{g}}:{PARENT}"),
        }[request.param]

        def find() -> str:
            return str(client.get(f"{pipeline_name}:shown:generation"))

        yield Bed(store, [Reader(find, look), Reader(find, look, LOOKS_HELD)], options)


def test_readers_find_the_former_rows_or_the_new_ones(bed: Bed):
    """Every row of one of them, in its columns; never none, never a mixture, never the former ones again."""
    view, shown = FORMER, {1: FORMER}
    sink = bed.sink(view)
    sink.replace(bed.frame(view, 1), at(10))
    for reader in bed.readers:
        reader.start()
    try:
        for mark in range(2, SWAPS + 2):
            bed.await_looks()
            former = sink
            if mark % 2:
                other = OTHERWISE if view.columns == FORMER.columns else FORMER
                view = replace(other, fingerprint=f"declared at {mark}")
                sink = bed.sink(view)
            beside = sink.beside()
            beside.replace(bed.frame(view, mark - 1), at(10 * mark - 5))
            beside.write(bed.frame(view, mark), at(10 * mark))
            shown[mark] = view
            if sink is former:
                sink.adopt(beside, at(10 * mark))
            else:
                sink.supersede(former, beside, at(10 * mark))
            sink.clear()
        bed.await_looks()
    finally:
        for reader in bed.readers:
            reader.done.set()
        for reader in bed.readers:
            reader.join(60)
    for reader in bed.readers:
        assert reader.error is None, reader.error
        marks = []
        for rows in reader.seen:
            assert sorted(int(row["id"]) for row in rows) == list(KEYS)
            [mark] = {int(row["mark"]) for row in rows}
            columns = {name for row in rows for name in row if not name.startswith("_")}
            assert columns == set(shown[mark].columns)
            marks.append(mark)
        assert marks == sorted(marks)
        assert set(marks) >= {1, SWAPS + 1}
