"""The works that are measured in turns: batches into mirrors, and rebuilds.

In: a Field with both sides held. Out: Figures. Every turn begins with the same records in the same topics, and ends
when a reader of Delta sees them; in the end both sides' tables are compared with Postgres.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.apply.field import Field
from bench.apply.result import Figures
from bench.apply.sides import Ours, Recipe, Side
from bench.apply.tables import all_updated, changed, recent_changed
from jobs.control import ControlClient, Kind, State

_WARM_UPS = 3
_REBUILD_S = 300.0


def changes(field: Field, count: int, repeats: int, *, tables: int = 1, target: str) -> Figures:
    """`count` changes of keys all over each of the tables, into mirrors of many rows."""
    figures = Figures("s", target)
    names = field.tables[:tables]
    with memory(field, figures):
        for turn in range(_WARM_UPS + repeats):
            field.turns += 1
            statements = [each for name in names for each in changed(name, count, field.rows, field.turns)]
            field.publish(*statements)
            for side in field.sides:
                took = side.turn(field.ends(*names))
                if turn >= _WARM_UPS:
                    figures.of(side.name).append(took)
    if tables == 1:
        figures.limit = [*_direct_merges(field, count, repeats)]
    require_equal(field)
    return figures


def recent_changes(field: Field, count: int, repeats: int, *, target: str) -> Figures:
    """`count` changes among the newest keys."""
    figures = Figures("s", target)
    with memory(field, figures):
        for turn in range(_WARM_UPS + repeats):
            field.turns += 1
            field.publish(*recent_changed(field.tables[0], count, field.rows, field.turns))
            for side in field.sides:
                took = side.turn(field.ends())
                if turn >= _WARM_UPS:
                    figures.of(side.name).append(took)
    require_equal(field)
    return figures


def rebuild(field: Field, repeats: int, *, target: str) -> Figures:
    """Every row has been changed once: so many events from offset zero to a table that readers see."""
    figures = Figures("events/s", target)
    table = field.tables[0]
    field.publish(*all_updated(table, 1))
    for side in field.sides:
        side.turn(field.ends(table))
    events = sum(field.ends(table)[table])
    with memory(field, figures):
        for turn in range(1 + repeats):
            for side in field.sides:
                took = _rebuilt(field, side, table, turn)
                if turn:
                    figures.of(side.name).append(events / took)
            if turn and (recipe := field.side(Recipe.name)):
                figures.limit.append(events / _asked(recipe, f"scan {table}"))
    figures.more = {"events": events}
    require_equal(field)
    return figures


def _rebuilt(field: Field, side: Side, table: str, turn: int) -> float:
    if isinstance(side, Recipe):
        return _asked(side, f"rebuild {table} again_{turn}")
    side.look(table)
    before = len(side.versions[table].seen)
    with ControlClient(field.pipeline.settings) as client, client.keep(Kind.REBUILD, view=f"public.{table}") as kept:
        began = time.monotonic()
        side.go()
        client.await_answer(kept.id, {State.DONE}, _REBUILD_S)
    seen = side.look(table).seen
    assert len(seen) == before + 1, "a rebuild is one commit"
    took = time.monotonic() - began
    assert isinstance(side, Ours)
    side.hold()
    return took


def _asked(side: Side, words: str) -> float:
    assert isinstance(side, Recipe)
    side.go()
    began = time.monotonic()
    side.ask(words)
    side.done()
    took = time.monotonic() - began
    side.hold()
    return took


@contextmanager
def memory(field: Field, figures: Figures) -> Iterator[None]:
    """The sides' peaks while the block lasts."""
    for side in field.sides:
        side.forget_peak()
    yield
    for side in field.sides:
        if isinstance(side, Ours):
            figures.memory_mb = side.peak_mb
        else:
            figures.peer_memory_mb = side.peak_mb


def _direct_merges(field: Field, count: int, repeats: int) -> Iterator[float]:
    """delta-rs alone, in this process, with the changes in memory: what the storage takes."""
    side = field.side(Ours.name)
    if side is None:
        return
    path = field.bench.folder / "limit"
    shutil.copytree(side.versions[field.tables[0]].folder, path)
    every = field.rows // count
    for turn in range(1 + repeats):
        source = _rows(DeltaTable(path), f"id % {every} = {turn % every} LIMIT {count}")
        values = {name: f"s.{name}" for name in source.column_names}
        began = time.monotonic()
        merge = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update(values).when_not_matched_insert(values).execute()
        if turn:
            yield time.monotonic() - began
    shutil.rmtree(path)


def require_equal(field: Field, *sides: Side) -> None:
    """Counts and sums of every table on these sides, else on each, as Postgres has them."""
    asked = "SELECT count(*), sum(id), sum(amount), sum(mark) FROM {}"
    with field.bench.connect(field.database) as connection:
        for table in field.tables:
            expected = connection.execute(asked.format(table).encode()).fetchone()
            assert expected is not None
            for side in sides or field.sides:
                found = _sums(DeltaTable(side.versions[table].folder))
                wanted = [str(value) for value in expected]
                assert found == wanted, f"{side.name}'s {table} holds {found}, Postgres {wanted}"


def _sums(table: DeltaTable) -> list[str]:
    words = "count(*), sum(id), sum(amount), sum(mark)"
    batch = _query(table, f"SELECT {words} FROM rows").to_pylist()[0]  # noqa: S608  our own words
    return [str(value) for value in batch.values()]


def _rows(table: DeltaTable, condition: str) -> Any:
    return _query(table, f"SELECT * FROM rows WHERE {condition}")  # noqa: S608


def _query(table: DeltaTable, words: str) -> Any:
    return pa.table(QueryBuilder().register("rows", table).execute(words).read_all())
