"""The peer: the usual recipe for mirrors of a CDC topic, with the same Spark, the same jars and the same settings.

In: a configuration, a folder, tables; lines on standard input. Out: Delta tables kept by Structured Streaming, one
query a table: parse, the last event per key, MERGE in foreachBatch, and Delta's own mark against repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from delta import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from bench.apply.tables import COLUMNS, CUSTOMERS
from bench.apply.worker import tell
from cdc.configuration import load_settings
from cdc.names import topic_name
from cdc.settings import Settings
from jobs.kafka_options import source_options
from jobs.session import spark_session

_AFTER = ", ".join(
    # Decimals and times arrive as strings, and are cast.
    f"{name} {kind if kind in ('bigint', 'int', 'boolean') else 'string'}"
    for name, kind in COLUMNS.items()
)
# While it is paused, no request shall seem to have been lost.
_PATIENCE = {"kafka.request.timeout.ms": "3600000", "kafka.default.api.timeout.ms": "3600000"}
_EVENT = f"op string, after struct<{_AFTER}>"


@dataclass(frozen=True, slots=True)
class Mirror:
    """One table's stream, and where it goes."""

    settings: Settings
    spark: SparkSession
    table: str
    folder: Path

    @property
    def checkpoint(self) -> Path:
        """Structured Streaming's own."""
        return self.folder / "checkpoint"

    def start(self, *, once: bool = False) -> StreamingQuery:
        """From the beginning, or from its checkpoint."""
        fields = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{self.folder / 'table'}` ({fields}) USING delta")
        topic = topic_name(self.settings.pipeline, "public", self.table)
        options = {
            **source_options(self.settings.kafka),
            **_PATIENCE,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        stream = self.spark.readStream.format("kafka").options(**options).load()
        writer = stream.writeStream.foreachBatch(self._merge).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def _merge(self, batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        session.conf.set("spark.databricks.delta.write.txnAppId", str(self.folder))
        session.conf.set("spark.databricks.delta.write.txnVersion", str(number))
        values: dict[str, str | Column] = {name: f"s.{name}" for name in COLUMNS}
        (
            DeltaTable.forPath(session, str(self.folder / "table"))
            .alias("t")
            .merge(_newest(batch).alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.op = 'd'")
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert("s.op <> 'd'", values)
            .execute()
        )


def _newest(batch: DataFrame) -> DataFrame:
    """The last event of each key, typed; a tombstone says nothing that the event before it has not said."""
    events = batch.where("value IS NOT NULL").select(
        F.from_json(F.col("key").cast("string"), "id bigint").alias("key"),
        F.from_json(F.col("value").cast("string"), _EVENT).alias("event"),
        "offset",
    )
    newest = F.max(F.struct("offset", "event.op", "event.after")).alias("newest")
    last = events.groupBy("key.id").agg(newest)
    rest = [F.col(f"newest.after.{name}").cast(kind).alias(name) for name, kind in COLUMNS.items() if name != "id"]
    return last.select("id", "newest.op", *rest)


def _scan(settings: Settings, spark: SparkSession, table: str) -> None:
    """What Spark needs to read the topic and throw it away."""
    options = {**source_options(settings.kafka), "subscribe": topic_name(settings.pipeline, "public", table)}
    spark.read.format("kafka").options(**options).load().agg(F.sum(F.length("value"))).collect()


def _compute(spark: SparkSession, folder: Path, views: dict[str, str], customers: str) -> None:
    """All views over the mirrors as they are, one computation after the other; the customers never change."""
    while True:
        began = time.monotonic()
        session = spark.newSession()
        session.read.format("delta").load(customers).createOrReplaceTempView(CUSTOMERS)
        for mirror in folder.glob("*/table"):
            session.read.format("delta").load(str(mirror)).createOrReplaceTempView(mirror.parent.name)
        for name, select in views.items():
            session.sql(select).write.format("delta").mode("overwrite").save(str(folder / "views" / name))
        with (folder / "rounds.jsonl").open("a") as rounds:
            rounds.write(json.dumps([began, time.monotonic()]) + "\n")


def _watch(query: StreamingQuery) -> None:
    """A query that fails is the end."""
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        sys.stderr.write(f"{error}\n")
        os._exit(1)


def main() -> None:
    """Keep the tables until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--views", help="name to SELECT, as JSON: computed again and again, in full")
    arguments = parser.parse_args()
    settings = load_settings(arguments.config)
    spark = spark_session(settings, "recipe")
    for table in arguments.tables:
        query = Mirror(settings, spark, table, arguments.folder / table).start()
        threading.Thread(target=_watch, args=(query,), daemon=True).start()
    if arguments.views:
        views = json.loads(arguments.views)
        customers = f"{settings.delta_root}/public.{CUSTOMERS}"
        threading.Thread(target=_compute, args=(spark, arguments.folder, views, customers), daemon=True).start()
    for line in sys.stdin:
        match line.split():
            case ["rebuild", table, name]:
                query = Mirror(settings, spark, table, arguments.folder / name).start(once=True)
                query.awaitTermination()
            case ["scan", table]:
                _scan(settings, spark, table)
            case _:
                break
        tell(f"done {time.monotonic()}")
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
