"""Large ranges of real topics read without Spark: the very rows that Spark reads, or left to it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import jobs.bulk.newest
import jobs.bulk.sample
import jobs.bulk.scan
import jobs.bulk.shares
import jobs.bulk.typed
import jobs.changes
from cdc.settings import Kafka
from cdc.stack.server import Endpoint
from cdc.values import encoder
from jobs.bulk.read import read_rows
from jobs.changes import read_changes
from jobs.native_rows import Unusual
from jobs.tables import ColumnInfo, TableInfo
from sinks.arrow_frames import rows_in
from sinks.protocol import AT, LSN, OP, UPSERT
from tests.support.events import EventLog, Row, table
from tests.support.reading import read_by

ID = ColumnInfo("id", "bigint", 20, 20, key=True, nullable=False)
NAME = ColumnInfo("name", "text", 25, 25)
PRICE = ColumnInfo("price", "numeric(10,2)", 1700, 1700, type_mod=(10 << 16 | 2) + 4)
ALL = 2**62


class Topic:
    """One table's topic, and both ways to read it."""

    def __init__(self, spark: SparkSession, kafka: Kafka, info: TableInfo, folder: Path) -> None:
        self.info, self.log = info, EventLog(kafka.bootstrap, info)
        self._spark, self.kafka, self._folder = spark, kafka, folder
        self.shares = 0
        """In so many the rows came last."""

    def natively(self, floor: int = 0, ceiling: int = ALL, end=None, info=None) -> list[tuple]:
        """Its rows, in some order of their own."""
        offsets = self.log.start, end or self.log.ends
        shares = [*read_rows(info or self.info, self.kafka, offsets, (floor, ceiling), lambda _: None, self._folder)]
        self.shares = len(shares)
        return _ordered(pa.concat_tables(shares).to_pylist())

    def by_spark(self, floor: int = 0, ceiling: int = ALL, end=None, info=None) -> list[tuple]:
        offsets = self.log.start, end or self.log.ends
        changes = read_changes(self._spark, info or self.info, self.kafka, offsets, (floor, ceiling))
        found = changes.frame.where(f"{OP} = '{UPSERT}'").drop(OP, LSN, AT).toArrow().to_pylist()
        changes.release()
        return _ordered(found)


def _ordered(rows: list[dict]) -> list[tuple]:
    return sorted((tuple(row.items()) for row in rows), key=str)


@pytest.fixture
def topic(spark: SparkSession, kafka: Endpoint, pipeline_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Makes topics; Spark reads all of them."""
    read_by(monkeypatch, "spark")

    def make(*columns: ColumnInfo, name: str = "orders") -> Topic:
        return Topic(
            spark, Kafka(bootstrap=kafka.address), table(pipeline_name, columns, name=name), tmp_path / "put by"
        )

    return make


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few records are a chunk, and what was found is gone through again after each."""
    monkeypatch.setattr(jobs.bulk.scan, "BYTES_AT_ONCE", 500)
    monkeypatch.setattr(jobs.bulk.scan, "RECORDS_AT_ONCE", 7)
    monkeypatch.setattr(jobs.bulk.newest, "FOLD_BYTES", 0)
    monkeypatch.setattr(jobs.bulk.typed, "KEYS_AT_ONCE", 3)


@pytest.fixture
def in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few records each, put by on disk after every chunk."""
    monkeypatch.setattr(jobs.bulk.sample, "ONE_SHARE_RECORDS", 0)
    monkeypatch.setattr(jobs.bulk.sample, "SHARE_RECORDS", 9)
    monkeypatch.setattr(jobs.bulk.shares, "HELD_BYTES", 0)


def row(key: int, name: str | None = "n", price: str | None = "1.00") -> Row:
    return {"id": key, "name": name, "price": price}


def _history(log: EventLog, chance: random.Random) -> None:
    """Transactions, some of them aborted, published again or late; deletes, truncates, rows that come back."""
    published: list[tuple[int, list]] = []
    for lsn in range(10, 300, 10):
        events: list = []
        for _ in range(chance.randint(1, 8)):
            op = chance.choices("crud", (3, 1, 4, 3))[0]
            events.append((op, row(chance.randint(1, 25), chance.choice([None, "a", "é\n\"'"]), f"{lsn}.5")))
        if chance.random() < 0.08:
            events.insert(chance.randint(0, len(events)), ("t", None))
        if chance.random() < 0.15:
            log.aborted(lsn, *events)
            continue
        log.transaction(lsn, *events)
        published.append((lsn, events))
        if chance.random() < 0.15:
            lsn_again, again = chance.choice(published)
            log.transaction(lsn_again, *again)


@pytest.mark.parametrize(
    ("rows", "is_marked", "is_held"),
    [(5, True, True), (5, False, False), (4, True, False)],
)
def test_more_rows_are_held_for_mirrors_that_mark_theirs(topic, spark, monkeypatch, rows, is_marked, is_held):
    monkeypatch.setattr(jobs.changes, "BULK_RECORDS_MIN", 0)
    monkeypatch.setattr(jobs.changes, "BULK_RECORDS_MAX", 3)
    monkeypatch.setattr(jobs.changes, "MARKED_ROWS_MAX", rows)
    made = topic(ID, NAME)
    made.log.transaction(10, *(("c", row(key)) for key in range(5)))
    made.log.transaction(20, ("u", row(3, "again")))
    offsets = made.log.start, made.log.ends
    changes = read_changes(spark, made.info, made.kafka, offsets, (0, ALL), is_marked=is_marked)
    assert (rows_in(changes.frame) is not None) is is_held
    places = sorted(row[AT] for row in changes.frame.collect())
    assert changes.count == len({*places}) == 5
    assert all(place.startswith(f"{made.info.topic}@") for place in places)
    changes.release()


@pytest.mark.parametrize("seed", range(4))
def test_histories_are_read_as_spark_reads_them(topic, in_small_pieces, seed):
    chance = random.Random(seed)
    made = topic(ID, NAME, PRICE)
    _history(made.log, chance)
    assert made.natively() == made.by_spark()
    assert made.natively(floor=100, ceiling=200) == made.by_spark(floor=100, ceiling=200)
    half = tuple(end // 2 for end in made.log.ends)
    assert made.natively(end=half) == made.by_spark(end=half)


@pytest.mark.parametrize("seed", range(4, 7))
def test_histories_are_read_in_shares_as_spark_reads_them(topic, in_small_pieces, in_shares, seed, tmp_path):
    made = topic(ID, NAME, PRICE)
    _history(made.log, random.Random(seed))
    assert made.natively() == made.by_spark()
    assert made.shares > 3
    assert made.natively(floor=100, ceiling=200) == made.by_spark(floor=100, ceiling=200)
    assert not [*tmp_path.iterdir()], "nothing stays"


def test_shares_have_keys_of_their_own_in_order(topic, in_shares, tmp_path):
    name = replace(NAME, key=True, nullable=False)
    made = topic(name, ID)
    names = [f"{word} {number}" for number in range(30) for word in ("é", "a", "𝄞")]
    made.log.transaction(10, *(("c", {"name": each, "id": 1}) for each in names), ("t", None))
    made.log.transaction(20, *(("c", {"name": each, "id": 2}) for each in names[::2]))
    offsets = made.log.start, made.log.ends
    shares = [*read_rows(made.info, made.kafka, offsets, (0, ALL), lambda _: None, tmp_path)]
    bounds = [(min(each), max(each)) for share in shares if (each := share.column("name").to_pylist())]
    assert len(bounds) > 3
    assert bounds == sorted(bounds)
    assert all(one[1] < two[0] for one, two in pairwise(bounds))
    assert sorted(name for share in shares for name in share.column("name").to_pylist()) == sorted(names[::2])


def test_a_load_that_is_not_wanted_any_more_leaves_nothing(topic, in_shares, tmp_path):
    made = topic(ID, NAME, PRICE)
    made.log.transaction(10, *(("c", row(key)) for key in range(50)))
    heard = []

    def on_read(count: int) -> None:
        heard.append(count)
        if count == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(read_rows(made.info, made.kafka, (made.log.start, made.log.ends), (0, ALL), on_read, tmp_path / "a"))
    assert sum(heard) >= 50
    assert not [*tmp_path.iterdir()]


def test_what_would_be_too_many_shares_is_left_to_spark(topic, in_shares, monkeypatch):
    monkeypatch.setattr(jobs.bulk.sample, "SHARES_MAX", 2)
    made = topic(ID, NAME, PRICE)
    made.log.transaction(10, *(("c", row(key)) for key in range(50)))
    with pytest.raises(Unusual, match="size"):
        made.natively()


def test_an_empty_range_is_left_to_spark(topic):
    made = topic(ID, NAME, PRICE)
    with pytest.raises(Unusual):
        made.natively()
    made.log.transaction(10, ("c", row(1)), ("d", row(1)))
    assert made.natively() == []


TYPES = [
    ("boolean", 16, -1, ["t", "f"]),
    ("smallint", 21, -1, ["-32768", "32767"]),
    ("integer", 23, -1, ["-2147483648", "0"]),
    ("bigint", 20, -1, [str(-(2**63)), str(2**63 - 1)]),
    ("oid", 26, -1, ["4294967295", "0"]),
    ("real", 700, -1, ["0.1", "-0"]),
    ("double precision", 701, -1, ["1e+22", "5e-324"]),
    ("numeric(38,4)", 1700, (38 << 16 | 4) + 4, ["-1234567890123456789012345678901234.5678", "0.0000"]),
    ("numeric(38,38)", 1700, (38 << 16 | 38) + 4, ["-0." + "9" * 38, "0." + "0" * 37 + "1"]),
    ("numeric", 1700, -1, ["NaN", "1.50"]),
    ("date", 1082, -1, ["0001-01-01", "2026-11-18"]),
    ("timestamp", 1114, -1, ["1969-12-31 23:59:59.5", "2026-03-29 02:30:00.000001"]),
    ("timestamptz", 1184, -1, ["2026-03-29 01:30:00+00", "0001-01-01 00:00:00.1+00"]),
    ("bytea", 17, -1, ["\\x", "\\x00ff"]),
    ("text", 25, -1, ["", '[1,2] "é"\\ \n\u2028 𝄞\x01\x7f']),
    ("json", 114, -1, ['{"a": [1, 2.50]}', "null"]),
    ("time", 1083, -1, ["24:00:00", "00:00:00.000001"]),
]


def test_every_type_arrives_as_by_spark(topic):
    made = topic(ID, *(ColumnInfo(name, name, oid, oid, type_mod=mod) for name, oid, mod, _ in TYPES))
    for key in (0, 1):
        values = {name: json.loads(encoder(oid)(texts[key])) for name, oid, _, texts in TYPES}
        made.log.transaction(10 + key, ("c", {"id": key, **values}))
    made.log.transaction(12, ("c", {"id": 2, **{name: None for name, *_ in TYPES}}))
    assert made.natively() == made.by_spark()


def test_hostile_names_and_several_key_columns(topic):
    names = ['"; drop table x; --', "../é", "Id", "ID", "a.b", "`", "$", "__op", "select", "[x]", "key", "lsn", "c0"]
    made = topic(*(ColumnInfo(name, "text", 25, 25, key=place in (2, 3)) for place, name in enumerate(names)))
    made.log.transaction(10, ("c", {name: f"value of {name}\n" for name in names}))
    made.log.transaction(20, ("c", {**dict.fromkeys(names, "}\n{"), "Id": "another"}), ("d", {"Id": "x", "ID": "y"}))
    assert made.natively() == made.by_spark()
    assert len(made.natively()) == 2


def test_shapes_of_a_table_that_changed(topic):
    made = topic(ID, NAME, PRICE)
    made.log.transaction(10, ("c", row(1)), ("c", row(2)))
    wider = replace(made.info, columns=(*made.info.columns, ColumnInfo("later", "text", 25, 25)))
    keys = replace(made.info, columns=(ID,))
    for info in (wider, keys):
        assert made.natively(info=info) == made.by_spark(info=info)


def test_what_is_not_there_or_too_much_is_left_to_spark(topic, monkeypatch):
    made = topic(ID, NAME, PRICE)
    made.log.transaction(10, *(("c", row(key)) for key in range(20)))
    with pytest.raises(Unusual, match="end"):
        made.natively(end=tuple(end + 5 for end in made.log.ends))
    monkeypatch.setattr(jobs.bulk.newest, "HELD_BYTES_MAX", 100)
    with pytest.raises(Unusual, match="size"):
        made.natively()
