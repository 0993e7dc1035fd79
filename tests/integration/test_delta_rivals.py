"""Several writers of one Delta table: no turn is taken twice, and whoever is overtaken says so and writes nothing."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import sinks.delta.size
from cdc.errors import TransientError
from cdc.settings import Delta
from sinks.delta import DeltaSink
from sinks.delta.commit import Commit, merge, replace_keys
from sinks.delta.direct import merge_directly
from sinks.delta.literals import KeyColumn
from sinks.delta.log import table_state
from sinks.delta.marked import mark_and_append
from sinks.delta.size import measured
from sinks.protocol import DELETE, OP, UPSERT
from tests.support.delta_ways import (
    at,
    each_way,  # noqa: F401
    frame_of,  # noqa: F401
    rows,
    sink_of,  # noqa: F401
    sink_of_ten,  # noqa: F401
    view,
)


def directly(rows: DataFrame, commit: Commit, batch: Any) -> None:
    merge_directly(rows.toArrow(), commit, [column.name for column in batch.key], {})


def marking(rows: DataFrame, commit: Commit, batch: Any) -> None:
    mark_and_append(rows.toArrow(), commit, [column.name for column in batch.key], {})


def test_delta_itself_takes_no_turn_twice(sink, frame, spark, way):
    """The sink looks first; this is for two writers at once, and for a commit that landed after its writer died."""
    write = {"replace_keys": replace_keys, "merge": merge, "direct": directly, "marked": marking}[way]
    changes = frame((UPSERT, (1, "doubled", None)), (DELETE, (2,)))
    sink.write(frame((UPSERT, (3, "once", None))), at(200))
    version, generation = sink.version()
    state = table_state(sink.path, {}, "shop/orders")
    commit = Commit(sink.path, state.stamp, "shop/orders", state.turn, spark)
    batch = measured(changes, ("id",)) if way == "replace_keys" else bounded(changes)
    # Spark passes over it in silence, and the sink looks what became of its commit.
    with pytest.raises(TransientError, match="another process") if way in ("direct", "marked") else nullcontext():
        write(changes.select("id", "name", "price", OP), commit, batch)
    assert sink.version() == (version, generation)
    assert rows(sink)[1][1] == "n1"


def bounded(changes: DataFrame):
    return sinks.delta.size._large(changes, (KeyColumn("id", "bigint"),))


def test_a_batch_that_changes_nothing_is_no_rival(sink, frame, way):
    sink.write(frame((DELETE, (77,)), (DELETE, (78,))), at(200))
    assert (sink.held().version, sink.held().generation) == sink.version()
    sink.write(frame((DELETE, (77,)), (UPSERT, (1, "changed", None))), at(300))
    assert sink.position() == at(300)
    assert rows(sink)[1] == (1, "changed", None)


def test_looking_at_a_table_that_another_process_writes_is_no_conflict(sink, frame, make):
    reader = make()
    assert reader.position() == at(100)
    sink.write(frame((DELETE, (1,))), at(200))
    assert reader.version() == sink.version()
    with pytest.raises(TransientError):
        reader.held()


def test_other_commits_above_ours_do_not_move_the_view(sink, frame, spark):
    for _ in range(12):
        spark.sql(f"ALTER TABLE delta.`{sink.path}` SET TBLPROPERTIES ('note' = 'x')")
    assert sink.position() == at(100)
    sink.write(frame((DELETE, (1,))), at(200))
    assert sink.position() == at(200)


@pytest.mark.parametrize("by_replacing", [False, True])
def test_a_writer_that_is_overtaken_while_it_writes_writes_nothing(sink, frame, way, by_replacing):
    late = frame((UPSERT, (1, "late", None)))
    started, release = threading.Event(), threading.Event()
    path = sink.path

    class Rival(DeltaSink):
        """Lets another writer commit after this one has looked at the table."""

        def _commit(self, *args: Any) -> Commit:
            started.set()
            assert release.wait(60)
            return super()._commit(*args)

    slow = Rival(Delta(path=str(Path(path).parent.parent)), "shop", view())
    errors: list[BaseException] = []

    def run() -> None:
        try:
            slow.write(late, at(200))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    if by_replacing:
        sink.replace(frame((UPSERT, (1, "first", None))), at(150))
    else:
        sink.write(frame((UPSERT, (1, "first", None)), (DELETE, (2,))), at(150))
    version = sink.version()
    release.set()
    thread.join(120)
    (error,) = errors
    assert isinstance(error, TransientError)
    assert error.code == "SINK_OVERTAKEN"
    assert sink.version() == version
    assert rows(sink)[1][1] == "first"


def test_conflicting_commits_at_the_same_moment_are_transient(sink, frame, spark, way):
    """Many writers at once: each either commits, or is told to try again; none is lost silently."""
    outcomes: dict[int, str] = {}
    barrier = threading.Barrier(4)

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            sink.write(frame((UPSERT, (1, f"writer {number}", None))), at(1000 + number))
            outcomes[number] = "committed"
        except TransientError as error:
            outcomes[number] = error.code

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert set(outcomes) == set(range(4))
    assert set(outcomes.values()) <= {"committed", "DELTA_CONFLICT", "SINK_OVERTAKEN"}
    assert "committed" in outcomes.values()
    assert rows(sink)[1][1].startswith("writer")
