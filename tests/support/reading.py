"""The ways in which a range of a topic can be read, one of them chosen.

As fixtures: each `way`, a topic of `orders` with its `log`, and what can `read` a range of it.
"""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql import SparkSession

import jobs.changes
from cdc.settings import Kafka
from cdc.stack.server import Endpoint
from jobs.changes import Changes, read_changes
from jobs.tables import ColumnInfo, TableInfo
from jobs.unfit import STRICT
from sinks.protocol import LSN, OP
from tests.support.events import EventLog, table

WAYS: Final = ("driver", "bulk", "spark")
"""Record by record in the driver, many at a time there, by Spark."""

ID = ColumnInfo("id", "bigint", 20, 20, key=True, nullable=False)
NAME = ColumnInfo("name", "text", 25, 25)
PRICE = ColumnInfo("price", "numeric(10,2)", 1700, 1700, type_mod=(10 << 16 | 2) + 4)
ALL = 2**62


def read_by(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """This way first, however large the range is."""
    if way == "bulk":
        monkeypatch.setattr(jobs.changes, "BULK_RECORDS_MIN", 0)
    else:
        monkeypatch.setattr(jobs.changes, "BULK_RECORDS_MAX", -1)
    if way == "spark":
        monkeypatch.setattr(jobs.changes, "RECORDS_MAX", -1)


@pytest.fixture(name="way", params=WAYS)
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    read_by(monkeypatch, request.param)
    return request.param


@pytest.fixture(name="orders")
def orders_table(pipeline_name: str) -> TableInfo:
    return table(pipeline_name, [ID, NAME, PRICE])


@pytest.fixture(name="log")
def orders_log(kafka: Endpoint, orders: TableInfo) -> EventLog:
    return EventLog(kafka.address, orders)


@pytest.fixture(name="read")
def range_reader(spark: SparkSession, kafka: Endpoint, orders: TableInfo, log: EventLog, way: str):
    """Reads a range, by default everything; what it made is released after the test."""
    made: list[Changes] = []

    def read(floor: int = 0, ceiling: int = ALL, start=None, end=None, info=orders, watch=STRICT) -> Changes:
        offsets = (start or log.start, end or log.ends)
        changes = read_changes(spark, info, Kafka(bootstrap=kafka.address), offsets, (floor, ceiling), watch)
        made.append(changes)
        return changes

    yield read
    for changes in made:
        changes.release()


def row(key: int | str, name: str | None = "n", price: str | None = "1.00") -> dict:
    return {"id": key, "name": name, "price": price}


def found(changes: Changes) -> dict[int, tuple]:
    """Rows by key, without AT; OP, LSN first."""
    rows = changes.frame.collect()
    assert len(rows) == changes.count
    by_key = {each["id"]: (each[OP], each[LSN], each["name"], each["price"]) for each in rows}
    assert len(by_key) == len(rows), "a key is there twice"
    return by_key
