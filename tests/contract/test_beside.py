"""What every sink must keep that can be loaded beside the rows that readers see."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdc.errors import TransientError
from sinks import executor
from sinks.delta import BesideDelta, DeltaSink, staged
from sinks.delta.commit import NTZ_FEATURE
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT, Sink, SwappedSink, Written
from tests.support.sinks import ORDERS, STORES, Store, View, at

OLD = [(UPSERT, 10, (1, "one", Decimal("1.50"))), (UPSERT, 11, (2, None, None))]
NEW = [(UPSERT, 10, (1, "one", None)), (UPSERT, 11, (3, "three", None))]
TIMED = View({"id": "bigint", "at": "timestamp_ntz", "name": "string"}, name="timed")


@pytest.fixture(params=sorted(set(STORES) - {"kafka"}))
def store(request: pytest.FixtureRequest, spark: SparkSession, pipeline_name: str, monkeypatch: Any) -> Store:
    if request.param == "cache-hash":
        monkeypatch.setattr(executor, "DRIVER_BYTES_MAX", -1)
    return STORES[request.param](request, spark, pipeline_name)


@pytest.fixture
def sink(store: Store) -> SwappedSink:
    """A sink that holds OLD at position 100."""
    made = store.sink(ORDERS)
    assert isinstance(made, SwappedSink)
    made.replace(ORDERS.frame(store.spark, OLD), at(100))
    return made


def loaded(store: Store, sink: SwappedSink) -> Sink:
    """NEW beside it, as of 100."""
    beside = sink.beside()
    assert beside.position() is None
    assert beside.replace(ORDERS.frame(store.spark, NEW), at(100)) == Written(upserts=2)
    return beside


def names(sink: Sink) -> dict[int, str | None]:
    found = list(sink.rows())
    assert len(found) == len({row[0] for row in found})
    return {row[0]: row[1] for row in found}


def test_any_text_is_shown(store: Store, sink: SwappedSink):
    """Statistics of files quote texts, and what a line ends with differs from language to language."""
    beside = sink.beside()
    odd = "a\u2028b\x85c\x0bd\ne\r\\"
    beside.replace(ORDERS.frame(store.spark, [(UPSERT, 10, (1, odd, None)), (UPSERT, 11, (2, odd, None))]), at(100))
    sink.adopt(beside, at(100))
    assert names(sink) == {1: odd, 2: odd}


OTHERWISE = View({"id": "bigint", "total": "bigint", "name": "string"}, name=ORDERS.name, fingerprint="second")


def test_rows_of_another_declaration_are_shown_in_the_place_of_the_former_ones(store: Store, sink: SwappedSink):
    """Its columns are others; the sink of the former declaration goes on until then, and no longer."""
    coming = store.sink(OTHERWISE)
    assert isinstance(coming, SwappedSink)
    assert coming.position() is None
    beside = coming.beside()
    beside.replace(OTHERWISE.frame(store.spark, [(UPSERT, 10, (7, 70, "new"))]), at(100))
    sink.write(ORDERS.frame(store.spark, [(UPSERT, 150, (9, "former"))]), at(200))
    beside.write(OTHERWISE.frame(store.spark, [(UPSERT, 150, (8, 80, "newer"))]), at(200))
    assert 9 in {row[0] for row in sink.rows()}
    coming.supersede(sink, beside, at(200))
    assert {tuple(row) for row in coming.rows()} == {(7, 70, "new"), (8, 80, "newer")}
    assert store.sink(OTHERWISE).position() == at(200)
    assert store.sink(ORDERS).position() is None
    with pytest.raises(TransientError):
        sink.write(ORDERS.frame(store.spark, [(UPSERT, 250, (9, "too late"))]), at(300))
    coming.write(OTHERWISE.frame(store.spark, [(DELETE, 250, (7,))]), at(300))
    assert {tuple(row) for row in coming.rows()} == {(8, 80, "newer")}


def test_what_is_loaded_beside_goes_along_unseen_and_is_shown_at_once(store: Store, sink: SwappedSink):
    beside = loaded(store, sink)
    for each, change in ((sink, (UPSERT, 150, (2, "live"))), (beside, (UPSERT, 150, (4, "beside")))):
        each.write(ORDERS.frame(store.spark, [change, (DELETE, 151, (1,))]), at(200))
    beside.advance(at(300))
    sink.advance(at(300))
    assert beside.position() == at(300)
    assert names(beside) == {3: "three", 4: "beside"}
    another = store.sink(ORDERS)
    assert names(another) == {2: "live"}
    assert another.position() in (at(200), at(300))

    sink.adopt(beside, at(300))

    assert sink.position() == at(300)
    assert names(sink) == names(store.sink(ORDERS)) == {3: "three", 4: "beside"}
    sink.clear()
    sink.write(ORDERS.frame(store.spark, [(UPSERT, 350, (3, "again")), (DELETE, 351, (4,))]), at(400))
    assert names(store.sink(ORDERS)) == {3: "again"}
    assert store.sink(ORDERS).position() == at(400)


def test_the_next_load_begins_with_nothing_of_one_that_was_killed(store: Store, sink: SwappedSink):
    loaded(store, sink)
    another = store.sink(ORDERS)
    assert isinstance(another, SwappedSink)
    assert another.position() == at(100)
    another.clear()
    beside = another.beside()
    assert beside.position() is None

    beside.replace(ORDERS.frame(store.spark, OLD), at(100))
    another.adopt(beside, at(100))

    assert names(another) == {1: "one", 2: None}


@pytest.mark.parametrize("rival", ["write", "clear", "adopt"])
def test_a_zombie_shows_nothing(store: Store, sink: SwappedSink, rival: str):
    sink.position()
    beside = loaded(store, sink)
    another = store.sink(ORDERS)
    assert isinstance(another, SwappedSink)
    assert another.position() == at(100)
    match rival:
        case "write":
            another.write(ORDERS.frame(store.spark, [(UPSERT, 150, (2, "rival"))]), at(200))
        case "clear":
            another.clear()
        case _:
            another.adopt(loaded(store, another), at(100))
    before = names(another)

    with pytest.raises(TransientError):
        sink.adopt(beside, at(100))

    assert names(store.sink(ORDERS)) == before


@pytest.mark.parametrize("way", ["spark", "direct"])
def test_the_files_of_a_table_keep_their_statistics_and_every_reader_reads_them(
    request: pytest.FixtureRequest, spark: SparkSession, pipeline_name: str, monkeypatch: pytest.MonkeyPatch, way: str
):
    settings = STORES["delta"](request, spark, pipeline_name).settings
    sink = DeltaSink(settings.delta, pipeline_name, TIMED.spec)
    sink.replace(TIMED.frame(spark, [(UPSERT, 10, (1, None, "x"))]), at(100))
    beside = sink.beside()
    rows = TIMED.frame(spark, [(UPSERT, 10, (n, None, "y")) for n in range(50)])
    if way == "spark":
        beside.replace(rows, at(100))
    else:
        assert isinstance(beside, BesideDelta)
        monkeypatch.setattr(staged, "ROWS_PER_FILE_MAX", 20)
        assert beside.load([rows.drop(OP, LSN, AT).toArrow()], at(100)) == Written(upserts=50)
        assert beside.size(beside.held().version).files == 3
    beside.write(TIMED.frame(spark, [(DELETE, 20, (7,)), (UPSERT, 21, (90, None, "z"))]), at(200))
    was = sink.held()

    sink.adopt(beside, at(200))
    sink.clear()

    now = sink.held()
    assert now.generation == was.generation
    assert now.continues(was)
    assert not now.has_rows_of(was)
    assert sink.size(now.version).rows == 50
    assert spark.read.format("delta").load(sink.path).count() == 50
    assert spark.read.format("delta").option("versionAsOf", was.version).load(sink.path).count() == 1
    table = DeltaTable(sink.path)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    table.create_checkpoint()
    assert DeltaTable(sink.path).to_pyarrow_table().num_rows == 50
    sink.write(TIMED.frame(spark, [(UPSERT, 220, (90, None, "after"))]), at(300))
    assert sum(name == "after" for _, _, name in sink.rows()) == 1


def test_a_table_is_the_same_by_whichever_way_it_is_loaded(
    request: pytest.FixtureRequest, spark: SparkSession, pipeline_name: str
):
    kinds = [
        "boolean",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "date",
        "timestamp",
        "timestamp_ntz",
        "binary",
        "string",
    ]
    kinds += ["decimal(12,2)", "decimal(38,10)"]
    view = View({"id": "bigint", **{f"c{at}": kind for at, kind in enumerate(kinds)}})
    settings = STORES["delta"](request, spark, pipeline_name).settings
    tables = []
    for rows in ([], [(UPSERT, 10, (n,)) for n in (3, 1, 2)]):
        frame = view.frame(spark, rows)
        for way in ("spark", "direct"):
            beside = BesideDelta(settings.delta, pipeline_name, view.spec)
            if way == "spark":
                beside.replace(frame, at(100))
            else:
                beside.load([frame.drop(OP, LSN, AT).toArrow()], at(100))
            assert beside.position() == at(100)
            assert sorted(row[0] for row in beside.rows()) == sorted(row[0] for _, _, row in rows)
            table = DeltaTable(beside.path)
            # Spark names those too that every table has.
            assert NTZ_FEATURE in (table.protocol().writer_features or ())
            tables.append((table.schema().to_json(), beside.types(), table.metadata().configuration))
    for made in tables:
        assert made == tables[0]
