"""What the sinks' contract suite needs: views, DataFrames of changes, and each kind of store on a real server.

A new sink is one line in STORES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
import redis
import urllib3
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from cdc.kafka_clients import admin
from cdc.names import view_topic
from cdc.settings import Cache, Kafka, Search, Settings
from cdc.stack.server import Endpoint
from sinks import executor
from sinks.protocol import AT, LSN, OP, Position, Sink
from sinks.registry import make_sink
from sinks.spec import Kind, SinkOptions, ViewSpec
from tests.support.delta_store import delta_store, marked_store
from tests.support.wait import wait_until

ARROW = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "string": pa.string(),
}

Change = tuple[str, int, tuple[Any, ...]]


@dataclass(frozen=True)
class View:
    """A view's columns with their types, as tests write rows of it."""

    columns: Mapping[str, str]
    key: tuple[str, ...] = ("id",)
    name: str = "orders"
    fingerprint: str = "first"

    @property
    def spec(self) -> ViewSpec:
        columns = tuple(self.columns)
        return ViewSpec(
            self.name, Kind.ROWWISE, "public", "t", self.key, self.key, columns, "", "", (), self.fingerprint
        )

    def frame(self, spark: SparkSession, changes: Iterable[Change]) -> DataFrame:
        """A DataFrame of (op, lsn, row); a delete's row needs only its key."""
        rows = list(changes)
        padded = [(*row, *[None] * (len(self.columns) - len(row))) for _, _, row in rows]
        arrays: list[Any] = [
            pa.array([row[place] for row in padded], arrow_type(kind))
            for place, kind in enumerate(self.columns.values())
        ]
        control: list[Any] = [
            pa.array([op for op, _, _ in rows], pa.string()),
            pa.array([lsn for _, lsn, _ in rows], pa.int64()),
            pa.array([f"t:0:{lsn}" for _, lsn, _ in rows], pa.string()),
        ]
        table = pa.table([*arrays, *control], [*self.columns, OP, LSN, AT])
        kinds = {**self.columns, OP: "string", LSN: "bigint", AT: "string"}
        # Without a schema, Spark would take every Arrow timestamp for an instant.
        schema = StructType([StructField(name, DataType.fromDDL(kind)) for name, kind in kinds.items()])
        return spark.createDataFrame(table, schema)


def arrow_type(kind: str) -> Any:
    """The Arrow type behind Spark's name of a type."""
    if kind.startswith("decimal("):
        precision, scale = kind[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return ARROW[kind]


ORDERS = View({"id": "bigint", "name": "string", "price": "decimal(10,2)"})


def at(lsn: int) -> Position:
    """A position whose other fields follow from its LSN."""
    return Position(lsn, lsn * 1000, {"t": (lsn, 2 * lsn), "t.é": (0,)})


@dataclass(frozen=True)
class Store:
    """One kind of sink on its server; `lose` takes away what it holds of a view."""

    kind: str
    settings: Settings
    spark: SparkSession
    lose: Callable[[str], None]
    options: Mapping[str, str] = field(default_factory=dict)

    def sink(self, view: View, **options: str) -> Sink:
        """A sink, as another process would make it."""
        return make_sink(SinkOptions(self.kind, {**self.options, **options}), view.spec, self.settings, self.spark)

    def with_options(self, **options: str) -> Store:
        return replace(self, options={**self.options, **options})


def settings_for(pipeline: str, **sections: Any) -> Settings:
    """Settings of which only the sinks' part matters."""
    return Settings.model_validate(
        {"pipeline": pipeline, "source": {"database": "d", "tables": ["public.*"]}, **sections}
    )


def search_store(request: pytest.FixtureRequest, spark: SparkSession, pipeline: str) -> Store:
    """Documents in OpenSearch."""
    server: Endpoint = request.getfixturevalue("opensearch")
    url = f"http://{server.address}"

    def lose(view: str) -> None:
        found = urllib3.request("GET", f"{url}/_alias/{pipeline}-{view}")
        for index in found.json():
            urllib3.request("DELETE", f"{url}/{index}")

    return Store("search", settings_for(pipeline, search=Search(url=url)), spark, lose)


def cache_store(request: pytest.FixtureRequest, spark: SparkSession, pipeline: str) -> Store:
    """JSON entries in Valkey."""
    server: Endpoint = request.getfixturevalue("valkey")
    settings = settings_for(pipeline, cache=cache_of(server))

    def lose(view: str) -> None:
        with cache_client(server) as client:
            for key in client.scan_iter(match=f"*{pipeline}*{view}*"):
                client.delete(key)

    return Store("cache", settings, spark, lose)


def hash_store(request: pytest.FixtureRequest, spark: SparkSession, pipeline: str) -> Store:
    """Hashes in Valkey, under keys of another pattern."""
    return cache_store(request, spark, pipeline).with_options(value="hash", key="{view}/{pipeline}/{generation}/{key}")


def cache_of(server: Endpoint) -> Cache:
    """The settings that reach this Valkey."""
    return Cache.model_validate({"url": f"redis://{server.address}/0", "password": server.password})


def cache_client(server: Endpoint) -> redis.Redis:
    """A plain client, as a reader has it."""
    return redis.Redis(server.host, server.port, password=server.password, decode_responses=True)


def kafka_store(request: pytest.FixtureRequest, spark: SparkSession, pipeline: str) -> Store:
    """A compacted topic in Kafka."""
    server: Endpoint = request.getfixturevalue("kafka")
    settings = settings_for(pipeline, kafka=Kafka(bootstrap=server.address))

    def lose(view: str) -> None:
        topic, client = view_topic(pipeline, view), admin(settings.kafka)
        for future in client.delete_topics([topic], operation_timeout=30).values():
            future.result()
        wait_until(lambda: topic not in client.list_topics(timeout=10).topics, timeout_s=30)

    return Store("kafka", settings, spark, lose)


STORES: dict[str, Callable[[pytest.FixtureRequest, SparkSession, str], Store]] = {
    "delta": delta_store,
    "delta-marked": marked_store,
    "search": search_store,
    "cache": cache_store,
    "cache-hash": hash_store,
    "kafka": kafka_store,
}


@pytest.fixture(name="store", params=sorted(STORES))
def each_store(request: pytest.FixtureRequest, spark: SparkSession, pipeline_name: str, monkeypatch: Any) -> Store:
    """A test of every sink runs once for each kind of store."""
    if request.param == "cache-hash":
        # One kind is written by executors alone; the others also see the short cut of small batches.
        monkeypatch.setattr(executor, "DRIVER_BYTES_MAX", -1)
    return STORES[request.param](request, spark, pipeline_name)


def rows(sink: Sink) -> set[tuple[Any, ...]]:
    """What it holds, each row once."""
    found = list(sink.rows())
    assert len(found) == len(set(found)), "a row is there twice"
    return set(found)
