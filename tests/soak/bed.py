"""Servers, a source and a capture command of one soak, gone again at its end; and its result, as JSON."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from cdc.check.fix import fix
from cdc.postgres import connect
from cdc.settings import Kafka as KafkaSettings
from cdc.settings import Settings
from cdc.stack import daemon
from cdc.stack.kafka import Kafka
from cdc.stack.postgres import Postgres
from tests.support.processes import Command, write_config
from tests.support.servers import PostgresServer, fresh_database, sweep
from tests.support.source import TABLES, prepared_source

RESULTS = Path(__file__).parents[2] / "bench" / "results"


@dataclass(frozen=True)
class Bed:
    """A source that is ready, and capture not yet started."""

    settings: Settings
    admin: psycopg.Connection[Any]
    capture: Command


@contextmanager
def bed(ddl: str = TABLES, **source: Any) -> Iterator[Bed]:
    """Postgres and Kafka for this soak alone."""
    with tempfile.TemporaryDirectory(prefix="afterimage-soak-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        try:
            postgres = PostgresServer(daemon.start(Postgres(folder / "postgres", port=0)))
            kafka = daemon.start(Kafka(folder / "kafka", port=0))
            with (
                fresh_database(postgres) as database,
                prepared_source(database, f"s{secrets.token_hex(5)}", folder, ddl=ddl, **source) as prepared,
            ):
                settings = prepared.model_copy(update={"kafka": KafkaSettings(bootstrap=kafka.address, partitions=2)})
                settings.views.mkdir(parents=True)
                fix(settings)
                command = Command(write_config(settings, folder), ("capture",), folder / "capture.log")
                assert settings.source.admin is not None
                with connect(settings.source, settings.source.admin) as admin:
                    try:
                        yield Bed(settings, admin, command)
                    finally:
                        if command.process is not None:
                            command.stop()
        finally:
            sweep(folder)


def number(name: str, default: float) -> float:
    """A parameter from the environment."""
    return float(os.environ.get(name, default))


def measured_elsewhere() -> bool:
    """Whether the file that QUIET_FILE names is there: others measure on this machine, and nothing begins meanwhile."""
    return "QUIET_FILE" in os.environ and Path(os.environ["QUIET_FILE"]).exists()


def say(text: str) -> None:
    """A line for whoever watches."""
    sys.stderr.write(text + "\n")


def write_run(name: str, run: dict[str, Any], counted: Collection[str]) -> None:
    """One run as the result; with ADD=1 one more of those that are there, and what is counted over all of them."""
    path = RESULTS / f"{name}.json"
    # A run writes again and again: what was there before it began is kept.
    is_added = "ADD" in os.environ and path.exists()
    earlier = _earlier.setdefault(name, json.loads(path.read_text())["runs"] if is_added else [])
    runs = [*earlier, run]
    write_result(name, {what: _sum([each[what] for each in runs if what in each]) for what in counted} | {"runs": runs})


_earlier: dict[str, list[dict[str, Any]]] = {}


def _sum(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _sum([each[name] for each in values if name in each]) for each in values for name in each}
    return [part for each in values for part in each] if isinstance(values[0], list) else sum(values)


def write_result(name: str, result: dict[str, Any]) -> None:
    """Keep it, and show it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1) + "\n"
    (RESULTS / f"{name}.json").write_text(text)
    sys.stdout.write(text)
