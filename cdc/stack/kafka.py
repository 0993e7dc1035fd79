"""An embedded Kafka: one KRaft node on the loopback, transactions with one replica, topics only on purpose.

In: a folder. Out: what to run and whether it serves. Small internal topics and an eager cleaner make it start fast and
compact soon.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc.errors import OperatorError
from cdc.stack.fetch import fetch
from cdc.stack.java import SHORT_LIVED, java_home
from cdc.stack.locks import Artifact, load
from cdc.stack.ports import HOST
from cdc.stack.process import Command
from cdc.stack.server import Ports

PREFERRED_PORT = 29092
HEAP = "384m"
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "6000",
        # A row of Postgres may be large: up to 64 MB of it in one record, and a request above that.
        "message.max.bytes": "67108864",
        "socket.request.max.bytes": "134217728",
        "log.cleaner.enable": "true",
        "log.cleaner.dedupe.buffer.size": "33554432",
        # Compaction is part of the design, so it must not wait until nobody looks.
        "log.cleaner.backoff.ms": "2000",
        "log.initial.task.delay.ms": "2000",
        # A killed producer's transaction must not hold back read_committed readers for longer than its timeout.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # After a crash the broker may register again only when its old session has ended.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
)
LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server
logger.server.level = info
"""


class Kafka:
    """One embedded broker, its own controller."""

    name = "kafka"
    user: str | None = None
    password_file: Path | None = None

    def __init__(
        self,
        folder: Path,
        *,
        port: int = PREFERRED_PORT,
        settings: Mapping[str, str] | None = None,
        short_lived: bool = False,
    ) -> None:
        self.folder = folder
        self.preferred: Ports = {"kafka": port, "controller": port + 1 if port else 0}
        self._settings = {**SETTINGS, **(settings or {})}
        self._jvm = SHORT_LIVED if short_lived else ()

    def artifacts(self) -> tuple[Artifact, ...]:
        """Its jars."""
        return load("kafka").artifacts

    def prepare(self, ports: Ports) -> Command:
        """Fetch the jars, write the settings, format the log folder once."""
        jars = fetch(load("kafka").artifacts, what="Kafka")
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self._configure(ports)
        java = [str(java_home() / "bin" / "java"), "-cp", os.pathsep.join(map(str, jars))]
        java += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(java, properties)
        heap = [f"-Xmx{HEAP}", "-Xms128m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExitOnOutOfMemoryError"]
        return Command([*java, *heap, *self._jvm, "kafka.Kafka", str(properties)], self.folder)

    def why_not_ready(self, ports: Ports) -> str | None:
        """Ask the broker for its metadata."""
        address = f"{HOST}:{ports['kafka']}"
        # It is expected not to answer at first: librdkafka's complaints about that are nobody's news.
        quiet: dict[str, Any] = {"bootstrap.servers": address, "log_level": 0, "error_cb": lambda _: None}
        admin = AdminClient(quiet)
        try:
            brokers = admin.list_topics(timeout=1).brokers
        except KafkaException as error:
            return str(error.args[0].name())
        return None if brokers else "no broker registered"

    def listeners(self, ports: Ports) -> dict[str, str]:
        """Where it listens, and what it tells clients of that."""
        return {
            "listeners": f"PLAINTEXT://{HOST}:{ports['kafka']},CONTROLLER://{HOST}:{ports['controller']}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{ports['kafka']}",
            "controller.quorum.voters": f"1@{HOST}:{ports['controller']}",
        }

    def _configure(self, ports: Ports) -> Path:
        # Relative to its working folder, since a path may hold what Java's properties would misread.
        settings = {**self._settings, **self.listeners(ports), "log.dir": "data"}
        path = self.folder / "server.properties"
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        path.write_text(lines)
        (self.folder / "log4j2.properties").write_text(LOG4J)
        return path

    def _format(self, java: list[str], properties: Path) -> None:
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [*SHORT_LIVED, "-Xmx128m", "kafka.tools.StorageTool"]
        argv = [*java, *tool, "format", f"--cluster-id={cluster_id}", "-c", str(properties)]
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OperatorError(
                f"Kafka's log folder cannot be formatted: {(done.stdout + done.stderr).strip()[-2000:]}",
                f"is the disk full, or {self.folder} not writable?",
                code="SERVER_CRASHED",
            )
