"""Our side: `afterimage capture` in a process of its own, as a user would start it, with the settings it comes with.

In: a database and its table. Out: a Run.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.counters import ProgressCounter, measured
from bench.result import Run
from bench.servers import Bench
from cdc.check.fix import fix
from cdc.names import topic_name
from cdc.settings import Kafka, Role, Settings, Source

SIDE = "afterimage"
PASSWORD = "bench"  # noqa: S105  of servers that listen on the loopback and live for minutes
_WAIT_S = 900.0


@dataclass(slots=True)
class Pipeline:
    """One pipeline over some tables."""

    bench: Bench
    settings: Settings
    config: Path

    @staticmethod
    def prepared(bench: Bench, name: str, database: str, *tables: str, **sections: Any) -> Pipeline:
        """With its roles and its publication, for tables and other sections given as the configuration would."""
        at = bench.postgres
        source = Source(
            host=at.host,
            port=at.port,
            database=database,
            tables=tables,
            stream=Role(user="bench_stream", password=PASSWORD),
            read=Role(user="bench_read", password=PASSWORD),
            admin=Role(user=at.user or "", password=at.password),
        )
        data = bench.folder / name
        kafka = Kafka(bootstrap=bench.kafka.address)
        settings = Settings(pipeline=name, source=source, data=data, kafka=kafka, **sections)
        fix(settings)
        pipeline = Pipeline(bench, settings, bench.folder / f"{name}.yml")
        pipeline.write(pipeline.config, settings)
        return pipeline

    def write(self, path: Path, settings: Settings) -> None:
        """As a configuration file."""
        path.write_text(json.dumps(_plain(settings)))

    def take_snapshot(self) -> None:
        """Capture until the first boundary, then stop: what a catch-up begins with."""
        with self.running():
            self.wait_for_boundary()

    def wait_for_boundary(self) -> None:
        """Until the snapshot is complete."""
        counter = self._counter()
        try:
            deadline = time.monotonic() + _WAIT_S
            while counter() < 0 or counter.newest is None or not counter.newest.is_boundary:
                assert time.monotonic() < deadline, f"no snapshot yet; see {self.config.with_suffix('.log')}"
        finally:
            counter.close()

    def run(self, records: int) -> Run:
        """Capture until so many more records are on the broker."""
        counter = self._counter()
        counter()  # what is there before it starts
        try:
            with self.running() as process:
                return measured(SIDE, self.bench, process.pid, counter, records)
        finally:
            counter.close()

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Capture for as long as the block lasts."""
        process = self.start()
        try:
            yield process
        finally:
            stop(process)

    def topic(self, table: str) -> str:
        """Where the table's records go."""
        return topic_name(self.settings.pipeline, "public", table)

    def start(self) -> subprocess.Popen[bytes]:
        """The capture process."""
        argv = [sys.executable, "-m", "cdc", "--config", str(self.config), "capture"]
        with self.config.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _counter(self) -> ProgressCounter:
        return ProgressCounter(self.settings.kafka, self.settings.pipeline)


def _plain(settings: Settings) -> dict[str, Any]:
    """What a configuration file would say."""
    body: dict[str, Any] = settings.model_dump(mode="json", exclude_unset=True)
    for name, role in (("stream", settings.source.stream), ("read", settings.source.read)):
        body["source"][name]["password"] = role.secret()
    del body["source"]["admin"]
    return body


def stop(process: subprocess.Popen[bytes]) -> None:
    """As `down` does it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
