"""Rows that are marked as deleted instead of written anew: what readers see, what is tidied, what is left alone."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

import sinks.delta.marked
import sinks.delta.own_commit
from cdc.errors import TransientError
from cdc.settings import Delta
from jobs.refresh.lookup import rows_with
from sinks.delta import DeltaSink
from sinks.delta.entries import Unreadable, live_files, make_version
from sinks.delta.log import size_of
from sinks.delta.purge import purge
from sinks.delta.vectors import dead_rows, expanded, file_of, from_z85, is_enabled, read_vectors, widened, z85
from sinks.protocol import DELETE, UPSERT
from tests.support.sinks import View, at

VIEW = View({"id": "bigint", "mark": "bigint", "note": "string"}, name="marked")
ROWS = 1_000
Rows = dict[int, tuple[int, str | None]]


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0)


class Table:
    """A sink, and what it has to hold."""

    def __init__(self, spark: SparkSession, folder: Path, pipeline: str) -> None:
        self._spark = spark
        self._lsn = 1
        self.sink = DeltaSink(Delta(path=str(folder), deletion_vectors=True), pipeline, VIEW.spec)
        self.rows: Rows = {key: (0, f"n{key}") for key in range(ROWS)}
        self.sink.replace(self._frame([(UPSERT, (key, *row)) for key, row in self.rows.items()]), at(1))

    def write(self, *changes: tuple[str, tuple[Any, ...]]) -> None:
        self._lsn += 1
        for op, row in changes:
            self.rows.pop(row[0], None)
            if op == UPSERT:
                self.rows[row[0]] = (row[1], row[2])
        self.sink.write(self._frame(changes), at(self._lsn))

    def change(self, turn: int, keys: range) -> None:
        self.write(*((UPSERT, (key, turn, None)) for key in keys))

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.sink.path)

    def read(self) -> Rows:
        found = QueryBuilder().register("t", self.delta).execute("SELECT id, mark, note FROM t").read_all()
        rows = list(zip(*(found.column(name).to_pylist() for name in ("id", "mark", "note")), strict=True))
        assert len({row[0] for row in rows}) == len(rows), "a key is there twice"
        return {row[0]: row[1:] for row in rows}

    def _frame(self, changes: Any) -> Any:
        return VIEW.frame(self._spark, [(op, self._lsn, (*row, *[None] * (3 - len(row)))) for op, row in changes])


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, pipeline_name: str) -> Table:
    return Table(spark, tmp_path, pipeline_name)


def test_only_new_rows_are_written(table: Table):
    before = {path: Path(table.sink.path, path).stat() for path in live_files(table.sink.path, 0)}
    table.write((UPSERT, (3, 7, "three")), (DELETE, (4,)), (UPSERT, (5_000, 7, None)))
    after = live_files(table.sink.path, table.delta.version())
    assert before.keys() < after.keys(), "no file is gone"
    (new,) = after.keys() - before.keys()
    assert json.loads(after[new]["stats"])["numRecords"] == 2
    assert sum(map(len, dead_rows(table.delta).values())) == 2
    assert table.read() == table.rows
    assert size_of(table.delta).rows == len(table.rows)


def test_a_key_that_moves_from_file_to_file_is_there_once(table: Table):
    for turn in range(1, 25):
        table.change(turn, range(turn, 60, 3))
        table.write((DELETE, (turn,)), (UPSERT, (ROWS + turn, turn, "new")))
        assert table.read() == table.rows
    files = live_files(table.sink.path, table.delta.version())
    assert len(files) <= 2 + sinks.delta.marked.SMALL_FILES_MAX, "small files of earlier batches become one"


def test_a_file_without_rows_goes(table: Table):
    table.change(1, range(ROWS))
    assert dead_rows(table.delta) == {}
    assert len(live_files(table.sink.path, table.delta.version())) == 1
    assert table.read() == table.rows


def test_spark_and_polars_see_what_deltalake_sees(table: Table, spark: SparkSession):
    import polars

    table.change(1, range(0, ROWS, 7))
    table.write((DELETE, (1,)))
    by_spark = {row[0]: (row[1], row[2]) for row in spark.read.format("delta").load(table.sink.path).collect()}
    by_polars = {row[0]: row[1:] for row in polars.scan_delta(table.sink.path).collect().rows()}
    assert by_spark == by_polars == table.read() == table.rows


@pytest.mark.parametrize("other", ["merge", "compact", "z_order", "checkpoint", "spark"])
def test_another_writer_in_between_is_understood(table: Table, spark: SparkSession, other: str):
    table.change(1, range(0, ROWS, 7))
    match other:
        case "merge":
            source = pa.table({"id": [0, 8], "mark": [70, 80]})
            merged = table.delta.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
            merged.when_matched_update({"mark": "s.mark"}).execute()
            table.rows |= {0: (70, None), 8: (80, "n8")}
        case "compact":
            table.delta.optimize.compact()
        case "z_order":
            table.delta.optimize.z_order(["id"])
        case "checkpoint":
            table.delta.create_checkpoint()
        case "spark":
            spark.sql(f"UPDATE delta.`{table.sink.path}` SET mark = 9 WHERE id IN (0, 8)")
            table.rows |= {0: (9, None), 8: (9, "n8")}
    assert table.read() == table.rows
    # The log is read anew as well.
    sinks.delta.entries._logs.clear()
    table.change(2, range(0, ROWS, 5))
    assert table.read() == table.rows


def test_texts_of_delta_rs_are_read_as_well(spark: SparkSession, tmp_path: Path, pipeline_name: str):
    """It writes them as views, which Arrow neither filters nor compares."""
    view = View({"code": "string", "mark": "bigint", "note": "binary"}, name="coded")
    sink = DeltaSink(Delta(path=str(tmp_path), deletion_vectors=True), pipeline_name, replace(view.spec, key=("code",)))

    def frame(mark: int, codes: range) -> Any:
        return view.frame(spark, [(UPSERT, mark, (f"c{code}", mark, b"x")) for code in codes])

    sink.replace(frame(1, range(100)), at(1))
    source = pa.table({"code": ["c1"], "mark": [1]})
    merged = DeltaTable(sink.path).merge(source, "t.code = s.code", source_alias="s", target_alias="t")
    merged.when_matched_update({"mark": "s.mark"}).execute()
    sink.position()
    for turn in range(2, 5):
        sink.write(frame(turn, range(turn, 100, 3)), at(turn))
    expected = {f"c{code}": 1 for code in range(100)}
    expected |= {f"c{code}": turn for turn in range(2, 5) for code in range(turn, 100, 3)}
    table = DeltaTable(sink.path)
    assert len(dead_rows(table)) >= 1
    codes = pa.table({"code": pa.array([*expected], pa.string())})
    found = rows_with(sink.path, {}, table.version(), ["code", "mark", "note"], codes)
    assert dict(zip(*(found.column(name).to_pylist() for name in ("code", "mark")), strict=True)) == expected
    assert purge(table, sink.path) >= 1
    assert {row[0]: row[1] for row in sink.rows()} == expected


def test_lookups_do_not_see_what_is_marked(table: Table):
    table.change(1, range(0, ROWS, 2))
    keys = pa.table({"id": pa.array([0, 1, 2, 999], pa.int64())})
    found = rows_with(table.sink.path, {}, table.delta.version(), ["id", "mark"], keys)
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [(0, 1), (1, 0), (2, 1), (999, 0)]
    assert rows_with(table.sink.path, {}, table.delta.version(), ["mark"], None).num_rows == ROWS


def test_vectors_are_read_as_delta_rs_reads_them(table: Table, spark: SparkSession):
    for turn in range(1, 8):
        table.change(turn, range(turn, 300, turn + 1))
    spark.sql(f"DELETE FROM delta.`{table.sink.path}` WHERE id % 97 = 3")
    newest = table.delta.version()
    for version in (newest, newest - 1, 3, newest):
        then = DeltaTable(table.sink.path, version=version)
        vectors = dead_rows(then)
        assert vectors == expanded(then)
        assert any(vectors.values())


def test_a_damaged_vector_is_not_believed(table: Table):
    table.change(1, range(10))
    (vectors,) = Path(table.sink.path).glob("*.bin")
    content = bytearray(vectors.read_bytes())
    content[-6] ^= 1
    vectors.write_bytes(content)
    entries = live_files(table.sink.path, table.delta.version())
    with pytest.raises(Unreadable):
        read_vectors(
            table.sink.path,
            {path: entry["deletionVector"] for path, entry in entries.items() if "deletionVector" in entry},
        )


def test_two_writers_of_one_version_are_told_apart(table: Table, monkeypatch: pytest.MonkeyPatch):
    def lost(folder: str, version: int, actions: Any) -> None:
        """Somebody else's commit lands first."""
        Path(folder, "_delta_log", f"{version:020}.json").write_text('{"commitInfo":{"operation":"X"}}\n')
        made(folder, version, actions)

    made = make_version
    monkeypatch.setattr(sinks.delta.own_commit, "make_version", lost)
    with pytest.raises(TransientError, match="another process"):
        table.change(1, range(5))


def test_what_is_tidied_keeps_the_rows_and_what_an_hour_may_need(table: Table):
    table.change(1, range(0, ROWS, 3))
    older, rows = table.delta.version(), table.read()
    table.change(2, range(0, ROWS, 2))
    vectors = sorted(Path(table.sink.path).glob("*.bin"))
    orphan = Path(table.sink.path, "deletion_vector_11111111-1111-1111-1111-111111111111.bin")
    killed = [orphan, Path(table.sink.path, "part-killed.parquet"), Path(table.sink.path, "_delta_log", ".1.tmp")]
    for path in killed:
        path.write_bytes(b"never committed")
        os.utime(path, (time.time() - 7_200,) * 2)
    for path in vectors:
        os.utime(path, (time.time() - 7_200,) * 2)
    table.sink.held()
    table.sink._upkeep.be_due()
    assert table.sink.keep_up()
    assert not any(path.exists() for path in killed)
    assert set(vectors) <= set(Path(table.sink.path).glob("*.bin")), "a version of the last hour needs them"
    assert table.read() == table.rows
    past = QueryBuilder().register("t", DeltaTable(table.sink.path, version=older)).execute("SELECT id, mark FROM t")
    assert sum(past.read_all().column("mark").to_pylist()) == sum(mark for mark, _ in rows.values())
    assert dead_rows(table.delta) == {}, "more than a quarter was marked"
    table.sink.held()
    table.change(3, range(10))
    assert table.read() == table.rows


def test_few_marks_are_not_worth_a_file_written_anew(table: Table):
    table.change(1, range(0, ROWS, 10))
    assert purge(table.delta, table.sink.path) == 0
    table.change(2, range(0, ROWS, 3))
    assert purge(table.delta, table.sink.path) >= 1
    assert table.read() == table.rows


def test_a_rebuild_shows_whole_files(table: Table, spark: SparkSession):
    table.change(1, range(0, ROWS, 2))
    beside = table.sink.beside()
    beside.replace(VIEW.frame(spark, [(UPSERT, 9, (key, 9, None)) for key in range(50)]), at(9))
    beside.write(VIEW.frame(spark, [(UPSERT, 10, (0, 10, None))]), at(10))
    table.sink.adopt(beside, at(10))
    assert table.read() == {0: (10, None)} | dict.fromkeys(range(1, 50), (9, None))
    assert dead_rows(table.delta) == {}


def test_readers_never_see_a_key_twice_or_not_at_all(table: Table):
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            answer = QueryBuilder().register("t", table.delta).execute("SELECT count(*), count(DISTINCT id) FROM t")
            seen.extend(column.to_pylist()[0] for column in answer.read_all().columns)

    reader = threading.Thread(target=look)
    reader.start()
    turn = 0
    while turn < 6 or len(seen) < 20:
        turn += 1
        table.change(turn, range(turn, ROWS, 11))
    done.set()
    reader.join(60)
    assert set(seen) == {ROWS}


def test_a_table_stays_as_others_read_it_where_nobody_asked_for_marks(
    spark: SparkSession, tmp_path: Path, pipeline_name: str
):
    sink = DeltaSink(Delta(path=str(tmp_path)), pipeline_name, VIEW.spec)
    sink.replace(VIEW.frame(spark, [(UPSERT, 1, (key, 0, None)) for key in range(10)]), at(1))
    sink.write(VIEW.frame(spark, [(UPSERT, 2, (1, 2, None))]), at(2))
    assert not is_enabled(DeltaTable(sink.path))
    assert DeltaTable(sink.path).to_pyarrow_table().num_rows == 10


def test_a_small_table_stays_so_too(
    spark: SparkSession, tmp_path: Path, pipeline_name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 1 << 20)
    sink = DeltaSink(Delta(path=str(tmp_path), deletion_vectors=True), pipeline_name, VIEW.spec)
    sink.replace(VIEW.frame(spark, [(UPSERT, 1, (key, 0, None)) for key in range(10)]), at(1))
    sink.write(VIEW.frame(spark, [(UPSERT, 2, (1, 2, None))]), at(2))
    assert not is_enabled(DeltaTable(sink.path))
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0)
    sink.write(VIEW.frame(spark, [(UPSERT, 3, (1, 3, None))]), at(3))
    assert is_enabled(DeltaTable(sink.path))


def test_a_table_from_before_takes_marks_once_they_are_wanted(spark: SparkSession, tmp_path: Path, pipeline_name: str):
    changes: Callable[..., Any] = lambda lsn, *rows: VIEW.frame(spark, [(UPSERT, lsn, row) for row in rows])  # noqa: E731
    DeltaSink(Delta(path=str(tmp_path)), pipeline_name, VIEW.spec).replace(
        changes(1, *((key, 0, None) for key in range(10))), at(1)
    )
    sink = DeltaSink(Delta(path=str(tmp_path), deletion_vectors=True), pipeline_name, VIEW.spec)
    assert sink.position() == at(1)
    sink.write(changes(2, (1, 2, None)), at(2))
    assert is_enabled(DeltaTable(sink.path))
    assert sum(map(len, dead_rows(DeltaTable(sink.path)).values())) == 1
    assert spark.read.format("delta").load(sink.path).where("mark = 2").count() == 1


def test_letters_of_a_vector_say_which_file_it_is_in():
    data = bytes(range(16))
    assert from_z85(z85(data)) == data
    # The example of the protocol.
    assert file_of({"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"}) == (
        "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    assert file_of({"storageType": "i", "pathOrInlineDv": "x"}) is None


@pytest.mark.parametrize("stats", [None, "{}", '{"numRecords":1}', '{"numRecords":1,"tightBounds":true}'])
def test_bounds_are_no_longer_tight(stats: str | None):
    found = json.loads(widened(stats))
    assert found.pop("tightBounds") is False
    assert found == {name: value for name, value in json.loads(stats or "{}").items() if name != "tightBounds"}


def test_numbers_in_statistics_stay_what_they_are_to_the_last_digit():
    assert "12345678901234567890.123456789" in widened('{"minValues":{"a":12345678901234567890.123456789}}')
