"""A log of every change over real topics and Delta tables, against a model that remembers everything."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import jobs.every_change
from cdc.errors import CdcError
from cdc.settings import Delta, History, Kafka, Settings
from cdc.stack.server import Endpoint
from jobs.declare import mirror_spec
from jobs.every_change import read_every_change
from jobs.ledger import Ledger, LedgerRow
from jobs.query import parse_when, run_query
from jobs.tables import ColumnInfo, TableInfo
from jobs.unfit import Watch, digest
from sinks.history.sink import HistorySink
from sinks.protocol import Position, Written
from sinks.spec import SinkOptions
from tests.support.events import EventLog, table

ID = ColumnInfo("id", "bigint", 20, 20, key=True, nullable=False)
NAME = ColumnInfo("name", "text", 25, 25)
PRICE = ColumnInfo("price", "double precision", 701, 701)
ALL = 2**62


class Bench:
    """One table's topic, its log, and a ledger that says where it stands."""

    def __init__(self, spark: SparkSession, kafka: Endpoint, root: Path, pipeline: str, keep: str = "30d") -> None:
        self.spark, self.kafka = spark, Kafka(bootstrap=kafka.address)
        self.settings = Settings.model_validate(
            {
                "pipeline": pipeline,
                "source": {"database": "shop", "tables": ["public.*"]},
                "delta": Delta(path=str(root)),
                "history": History(tables=("public.*",), keep=keep),
            }
        )
        self.info = table(pipeline, [ID, NAME, PRICE])
        self.log = EventLog(kafka.address, self.info)
        self.read_to = self.log.start
        self.lsn = 0
        self.sink = self.new_sink()

    def new_info(self, info: TableInfo) -> None:
        self.info = self.log._table = info
        self.sink = self.new_sink()

    def new_sink(self) -> HistorySink:
        spec = mirror_spec(self.info)
        sink = HistorySink(self.settings, spec, SinkOptions("history", {"shape_lsn": f"0/{self.info.lsn:X}"}))
        sink.position()
        return sink

    def batch(self, lsn: int, *, replace: bool = False, floor: int | None = None) -> Written:
        """What apply does up to a boundary."""
        start = self.log.start if replace else self.read_to
        floor = floor if floor is not None else 0 if replace else self.lsn
        changes = read_every_change(self.spark, self.info, self.kafka, (start, self.log.ends), (floor, lsn))
        position = Position(lsn, lsn * 1000, {self.info.topic: self.log.ends})
        try:
            if changes.empty and not replace:
                written = Written()
                self.sink.advance(position)
            else:
                written = (self.sink.replace if replace else self.sink.write)(changes.frame, position)
        finally:
            changes.release()
        held = self.sink.held()
        rows = [LedgerRow(self.sink.folder, held.version, held.generation, lsn, lsn * 1000, {})]
        rows.append(LedgerRow("public.orders", 0, 0, lsn, lsn * 1000, {}))
        Ledger(self.settings.delta_root).write(rows)
        self.read_to, self.lsn = self.log.ends, lsn
        return written

    def as_of(self, when: str, sql: str) -> list[dict[str, Any]]:
        return run_query(self.settings, sql, as_of=parse_when(when)).table.to_pylist()

    def state(self, lsn: int) -> dict[int, tuple]:
        return {row["id"]: (row["name"], row["price"]) for row in self.as_of(f"0/{lsn:X}", "SELECT * FROM orders")}

    def newest(self) -> dict[int, tuple]:
        return {row[0]: row[1:3] for row in self.sink.rows()}


@pytest.fixture(params=["driver", "spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "spark":
        monkeypatch.setattr(jobs.every_change, "RECORDS_MAX", -1)
        monkeypatch.setattr("sinks.history.sink.few_rows", lambda _: None)
    return request.param


@pytest.fixture
def bench(spark: SparkSession, kafka: Endpoint, tmp_path: Path, pipeline_name: str) -> Bench:
    return Bench(spark, kafka, tmp_path, pipeline_name)


def row(key: int, name: str | None = "n", price: float = 1.5) -> dict:
    return {"id": key, "name": name, "price": price}


def test_every_change_is_kept_and_any_position_can_be_read(bench, way):
    bench.log.transaction(10, ("c", row(1)), ("c", row(2)), ("u", row(1, "second")))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("u", row(1, "third")), ("u", row(1, "fourth")), ("d", {"id": 2}))
    bench.log.transaction(30, ("c", row(2, "again")), ("u", row(1, None)))
    bench.log.transaction(40, ("d", {"id": 1}))
    bench.batch(41)
    assert bench.state(11) == bench.state(20) == {1: ("second", 1.5), 2: ("n", 1.5)}
    assert bench.state(21) == bench.state(30) == {1: ("fourth", 1.5)}
    assert bench.state(31) == bench.state(40) == {1: (None, 1.5), 2: ("again", 1.5)}
    assert bench.state(41) == bench.newest() == {2: ("again", 1.5)}
    log = bench.as_of(
        "0/29", 'SELECT id, "__op", "__lsn" FROM orders_changes WHERE "__lsn" >= 11 ORDER BY 3, "__ordinal"'
    )
    assert [(each["id"], each["__op"]) for each in log] == [(1, "u"), (1, "u"), (2, "d"), (2, "c"), (1, "u"), (1, "d")]


def test_versions_with_their_positions_and_times(bench):
    bench.log.transaction(10, ("c", row(1)), ("c", row(2)))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("u", row(1, "unseen")), ("u", row(1, "seen")))
    bench.log.transaction(30, ("d", {"id": 1}))
    bench.batch(31)
    shown = bench.as_of(
        "0/1F",
        "SELECT id, name, valid_from_lsn AS f, valid_to_lsn AS t, date_part('epoch', valid_from) * 1000 AS ms, "
        "is_current "
        "FROM orders_history ORDER BY id, f",
    )
    assert [tuple(each.values()) for each in shown] == [
        (1, "n", 10, 20, 10.0, False),
        (1, "seen", 20, 30, 20.0, False),
        (2, "n", 10, None, 10.0, True),
    ]
    # Up to an earlier position, what ended later is still current.
    assert bench.as_of("0/1E", "SELECT name FROM orders_history WHERE is_current ORDER BY id") == [
        {"name": "seen"},
        {"name": "n"},
    ]


def test_a_time_is_the_position_before_what_committed_later(bench):
    bench.log.transaction(10, ("c", row(1)))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("u", row(1, "x")))
    bench.log.transaction(30, ("u", row(1, "y")))
    bench.batch(40)

    def at(ms: float) -> tuple[int, str]:
        micros = f"1970-01-01 00:00:00.{int(ms * 1000):06}+00"
        answer = run_query(bench.settings, "SELECT name FROM orders", as_of=parse_when(micros))
        return answer.cut.lsn, answer.table.to_pylist()[0]["name"]

    assert [at(11), at(19.9), at(20), at(29.9), at(30), at(40)] == [
        (20, "n"), (20, "n"), (30, "x"), (30, "x"), (40, "y"), (40, "y"),
    ]  # fmt: skip
    for ms, code in ((10, "HISTORY_BEYOND"), (41, "AS_OF_AHEAD")):
        with pytest.raises(CdcError) as caught:
            at(ms)
        assert caught.value.code == code


def test_a_truncate_ends_every_key_that_was_there(bench, way):
    bench.log.transaction(10, ("c", row(1)), ("c", row(2)))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("c", row(3)), ("d", {"id": 2}))
    bench.log.transaction(30, ("t", None))
    bench.log.transaction(40, ("c", row(1, "new")))
    bench.log.transaction(50, ("u", row(1, "newer")), ("t", None), ("c", row(4)))
    bench.batch(51)
    assert bench.state(30) == {1: ("n", 1.5), 3: ("n", 1.5)}
    assert bench.state(31) == bench.state(40) == {}
    assert bench.state(50) == {1: ("new", 1.5)}
    assert bench.state(51) == bench.newest() == {4: ("n", 1.5)}
    ended = bench.as_of("0/33", 'SELECT id, "__lsn" AS l FROM orders_changes WHERE "__op" = \'t\' ORDER BY 2, 1')
    assert [tuple(each.values()) for each in ended] == [(1, 30), (3, 30), (1, 50)]


def test_rows_of_a_snapshot_that_say_what_is_known_are_no_changes(bench):
    bench.log.transaction(10, ("c", row(1)), ("c", row(2, None, -0.0)))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("r", row(1)), ("r", row(2, None, -0.0)))
    assert bench.batch(21).upserts == 0
    bench.log.transaction(30, ("r", row(1)), ("r", row(2, None, 0.0)), ("r", row(3)))
    assert bench.batch(31).upserts == 2
    assert bench.newest() == {1: ("n", 1.5), 2: (None, 0.0), 3: ("n", 1.5)}
    # Something was missed before, so what was in between nobody knows.
    assert bench.state(21)[2] == (None, -0.0)
    assert bench.state(31) == bench.newest()
    with pytest.raises(CdcError, match=r"between 0/15 and 0/1F") as caught:
        bench.state(25)
    assert caught.value.code == "HISTORY_GAP"


def test_a_batch_is_appended_once(bench):
    bench.log.transaction(10, ("c", row(1)))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("u", row(1, "x")))
    bench.batch(21)
    # The same range again, by a process that was killed before the ledger was written.
    bench.read_to, bench.lsn, bench.sink = bench.log.start, 11, bench.new_sink()
    bench.batch(21)
    assert bench.as_of("0/15", "SELECT count(*) AS n FROM orders_changes") == [{"n": 2}]


def test_another_writer_in_between_is_noticed(bench):
    bench.log.transaction(10, ("c", row(1)))
    bench.batch(11, replace=True)
    other = bench.new_sink()
    bench.log.transaction(20, ("u", row(1, "x")))
    bench.batch(21)
    bench.sink, bench.read_to, bench.lsn = other, bench.log.start, 11
    with pytest.raises(CdcError) as caught:
        bench.batch(31)
    assert caught.value.code == "SINK_OVERTAKEN"


def test_columns_come_and_go(bench):
    bench.log.transaction(10, ("c", row(1)))
    bench.batch(11, replace=True)
    extra = ColumnInfo("extra", "timestamp", 1114, 1114)
    wider = replace(bench.info, lsn=20, columns=(ID, NAME, extra))
    bench.new_info(wider)
    bench.log.transaction(
        20, ("u", {"id": 1, "name": "x", "extra": "2026-01-02T03:04:05"}), ("c", {"id": 2, "name": "y"})
    )
    bench.batch(21, replace=True)
    then = bench.as_of("0/14", "SELECT * FROM orders")
    assert then == [{"id": 1, "name": "n", "price": 1.5}]
    now = bench.as_of("0/15", "SELECT * FROM orders ORDER BY id")
    assert now == [
        {"id": 1, "name": "x", "extra": dt.datetime.fromisoformat("2026-01-02T03:04:05")},
        {"id": 2, "name": "y", "extra": None},
    ]


def test_what_was_read_late_may_lack_versions(bench, monkeypatch):
    bench.log.transaction(10, ("c", row(1)))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("u", row(1, "x")))
    monkeypatch.setattr("sinks.history.sink.COMPACTION_LAG_MS", -60_000)
    bench.batch(31)
    assert bench.state(11) == {1: ("n", 1.5)}
    assert bench.state(21) == bench.state(31) == {1: ("x", 1.5)}
    with pytest.raises(CdcError) as caught:
        bench.state(15)
    assert caught.value.code == "HISTORY_GAP"


def test_mending_appends_what_the_keys_are(bench, spark):
    bench.log.transaction(10, ("c", row(1)), ("c", row(2)))
    bench.batch(11, replace=True)
    rows = [(1, "right", 2.0, "u", 11, "proof"), (2, None, None, "d", 11, "proof")]
    frame = spark.createDataFrame(rows, "id bigint, name string, price double, __op string, __lsn bigint, __at string")
    bench.batch(20)
    found = bench.sink.rows_of(pa.table({"id": pa.array([2], pa.int64())}))
    assert list(found) == [(2, "n", 1.5)]
    bench.sink.mend(frame, Position(20, 20_000, {bench.info.topic: bench.log.ends}))
    assert bench.newest() == {1: ("right", 2.0)}


def test_what_is_older_than_asked_for_is_folded(spark, kafka, tmp_path, pipeline_name):
    bench = Bench(spark, kafka, tmp_path, pipeline_name, keep="1s")
    bench.log.transaction(10, ("c", row(1)), ("c", row(2)), ("c", row(3)))
    bench.batch(11, replace=True)
    bench.log.transaction(500, ("u", row(1, "x")), ("d", {"id": 2}))
    bench.log.transaction(1200, ("u", row(1, "y")), ("c", row(4)))
    bench.batch(1250)
    assert bench.state(499) == dict.fromkeys((1, 2, 3), ("n", 1.5))
    before = bench.state(1200)
    bench.log.transaction(1900, ("u", row(4, "z")))
    # 1900 ms is the time of the batch, so all before 900 ms goes: nothing changed between 500 and 900.
    bench.batch(1900 + 1)
    assert bench.state(1200) == before == {1: ("x", 1.5), 3: ("n", 1.5)}
    assert bench.state(1201) == {1: ("y", 1.5), 3: ("n", 1.5), 4: ("n", 1.5)}
    log = bench.as_of("0/76D", 'SELECT id, "__op", "__lsn" FROM orders_changes ORDER BY "__lsn", id')
    assert [tuple(each.values()) for each in log] == [
        (3, "r", 10), (1, "u", 500), (1, "u", 1200), (4, "c", 1200), (4, "u", 1900),
    ]  # fmt: skip
    with pytest.raises(CdcError, match=r"goes back to 0/4B0 \(1970-01-01 00:00:00 UTC\)") as caught:
        bench.state(600)
    assert caught.value.code == "HISTORY_BEYOND"
    # Time goes on without a change of this table.
    bench.batch(10_000)
    assert bench.newest() == bench.state(10_000) == {1: ("y", 1.5), 3: ("n", 1.5), 4: ("z", 1.5)}
    assert bench.as_of("0/2710", "SELECT count(*) AS n FROM orders_changes") == [{"n": 3}]
    with pytest.raises(CdcError):
        bench.state(1900)


def test_other_tools_read_the_log_as_documented(bench, spark):
    bench.log.transaction(10, ("c", row(1)), ("c", row(2)))
    bench.batch(11, replace=True)
    bench.log.transaction(20, ("u", row(1, "x")), ("d", {"id": 2}))
    bench.batch(21)
    page = Path("docs/HISTORY.md").read_text().replace("data/delta/shop/_history/public.orders", bench.sink.path)
    view = page[page.index("    SELECT *, __lsn AS valid_from_lsn") : page.index("\n\nand keep")]
    kept = page[page.index("`__op NOT IN") + 1 : page.index("`. polars")]
    shown = spark.sql(f"SELECT id, name, valid_to_lsn FROM ({view}) WHERE {kept}").collect()
    assert sorted(map(tuple, shown)) == [(1, "n", 20), (1, "x", None), (2, "n", 20)]
    code = page[page.index("    log = polars") : page.index("\n\nRead so")]
    names: dict[str, Any] = {"polars": pl, "lsn": 21}
    exec("\n".join(line.strip() for line in code.splitlines()), names)
    assert names["state"].collect().select("id", "name").rows() == [(1, "x")]


def test_a_row_that_fits_no_type_ends_its_version(bench):
    day = ColumnInfo("day", "date", 1082, 1082)
    bench.new_info(replace(bench.info, columns=(ID, NAME, PRICE, day)))
    bench.log.transaction(10, *(("c", row(key) | {"day": "2026-01-01"}) for key in (1, 2, 3)))
    bench.batch(19, replace=True)
    bench.log.transaction(20, ("u", row(1) | {"day": "infinity"}), ("u", row(2) | {"day": "0044-03-15 BC"}))
    bench.log.transaction(30, ("u", row(2, "fits") | {"day": "2026-01-02"}), ("d", {"id": 3}))
    changes = read_every_change(
        bench.spark, bench.info, bench.kafka, (bench.read_to, bench.log.ends), (19, 39), Watch(unfit_max=10)
    )
    lacked = [(unfit.key, unfit.lsn, unfit.columns) for unfit in changes.unfit]
    assert lacked == [(digest(b'{"id":1}'), 20, ("day",))]
    written = bench.sink.write(changes.frame, Position(39, 39_000, {bench.info.topic: bench.log.ends}))
    changes.release()
    assert (written.upserts, written.deletes) == (1, 3)
    assert {each[0]: each[1] for each in bench.sink.rows()} == {2: "fits"}
