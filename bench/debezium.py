"""The peer: Debezium's Postgres connector on a Kafka Connect worker of its own, tuned as docs/BENCHMARKS.md says.

In: a database, its table, a slot that may exist. Out: a Run. Its jars are those of config/locks/debezium.json.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.counters import TopicCounter, measured
from bench.result import Run
from bench.servers import Bench
from cdc.settings import Kafka
from cdc.stack.fetch import fetch
from cdc.stack.java import java_home
from cdc.stack.kafka import LOG4J
from cdc.stack.locks import load
from cdc.stack.ports import choose
from cdc.stack.unpack import unpacked

SIDE = "debezium"
HEAP = "2g"  # what Connect's own script gives it
WORKER = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": "1000",
    "producer.compression.type": "lz4",
    "producer.linger.ms": "10",
    "producer.batch.size": str(256 << 10),
    "producer.buffer.memory": str(64 << 20),
}
CONNECTOR = {
    "name": "bench",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",
    "decimal.handling.mode": "string",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "poll.interval.ms": "50",
    "snapshot.fetch.size": "20480",
}


@dataclass(slots=True)
class Connector:
    """One connector over one table, with a worker that runs for as long as a measurement."""

    bench: Bench
    name: str
    database: str
    table: str
    options: dict[str, str]

    @property
    def topic(self) -> str:
        """Where its records go."""
        return f"{self.name}.public.{self.table}"

    def run(self, records: int) -> Run:
        """Capture until so many more records are on the broker."""
        kafka = Kafka(bootstrap=self.bench.kafka.address)
        _create_topic(kafka, self.topic)
        counter, process = TopicCounter(kafka, self.topic), self.start()
        try:
            return measured(SIDE, self.bench, process.pid, counter, records)
        finally:
            counter.close()
            stop(process)

    @contextmanager
    def running(self, records: int) -> Iterator[None]:
        """Capture for as long as the block lasts, which begins when so many records are on the broker."""
        kafka = Kafka(bootstrap=self.bench.kafka.address)
        _create_topic(kafka, self.topic)
        counter, process = TopicCounter(kafka, self.topic), self.start()
        try:
            measured(SIDE, self.bench, process.pid, counter, records)
            yield
        finally:
            counter.close()
            stop(process)

    def start(self) -> subprocess.Popen[bytes]:
        """The worker process."""
        folder = self.bench.folder / self.name
        folder.mkdir(exist_ok=True)
        jars = fetch(load("debezium").artifacts, what="Debezium")
        classpath = os.pathsep.join(str(jar) for jar in jars if jar.suffix == ".jar")
        _write(folder / "worker.properties", {**WORKER, **self._worker(folder, jars)})
        _write(folder / "connector.properties", {**CONNECTOR, **self._connector(), **self.options})
        (folder / "log4j2.properties").write_text(LOG4J)
        java = [str(java_home() / "bin" / "java"), f"-Xmx{HEAP}", "-Xms256m", "-XX:+UseG1GC", "-cp", classpath]
        java += ["-Dlog4j2.configurationFile=log4j2.properties", "org.apache.kafka.connect.cli.ConnectStandalone"]
        with (folder / "connect.log").open("ab") as log:
            return subprocess.Popen(
                [*java, "worker.properties", "connector.properties"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _worker(self, folder: Path, jars: list[Path]) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bench.kafka.address,
            "offset.storage.file.filename": str(folder / "offsets"),
            "plugin.path": str(_plugins(jars)),
            "listeners": f"http://127.0.0.1:{choose({'rest': 0})['rest']}",
        }

    def _connector(self) -> dict[str, str]:
        at = self.bench.postgres
        return {
            "database.hostname": at.host,
            "database.port": str(at.port),
            "database.user": at.user or "",
            "database.password": at.password,
            "database.dbname": self.database,
            "topic.prefix": self.name,
            "table.include.list": f"public.{self.table}",
            "slot.name": self.name,
            "publication.name": "bench",
        }


def _plugins(jars: list[Path]) -> Path:
    [archive] = [jar for jar in jars if jar.name.endswith(".tar.gz")]

    def fill(target: Path) -> None:
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")

    return unpacked(f"debezium-{load('debezium').digest}", None, fill)


def _create_topic(kafka: Kafka, topic: str) -> None:
    """With the partitions that our own topics have, and compacted as they are."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    new = NewTopic(topic, num_partitions=kafka.partitions, replication_factor=1, config={"cleanup.policy": "compact"})
    for made in admin.create_topics([new]).values():
        made.result(30)


def _write(path: Path, properties: dict[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path.chmod(0o600)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask, then insist; what it had not confirmed is of no use to anybody."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
