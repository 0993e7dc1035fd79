"""The servers that both sides share: one Postgres, one broker, in a folder that is thrown away afterwards.

In: a folder. Out: where they are and which processes they are. The settings are the embedded stack's, with room for
many slots and without its limit on kept WAL, since a run's log waits for every reader.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from cdc.stack import daemon
from cdc.stack.kafka import Kafka
from cdc.stack.postgres import Postgres
from cdc.stack.server import Endpoint

_POSTGRES = {
    "max_replication_slots": "60",
    "max_wal_senders": "60",
    "max_slot_wal_keep_size": "-1",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}


@dataclass(frozen=True, slots=True)
class Bench:
    """Running servers and a folder to work in."""

    folder: Path
    postgres: Endpoint
    kafka: Endpoint

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """As the superuser; each statement commits."""
        at = self.postgres
        return psycopg.connect(
            host=at.host, port=at.port, user=at.user, password=at.password, dbname=database, autocommit=True
        )

    def create_database(self, name: str) -> None:
        """A new database."""
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def drop_database(self, name: str) -> None:
        """With its slots, so that the log can go."""
        with self.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [name]
            )
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            connection.execute("CHECKPOINT")


@contextmanager
def running(folder: Path) -> Iterator[Bench]:
    """Start both, stop both."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    postgres = Postgres(folder / "postgres", port=0, settings=_POSTGRES)
    kafka = Kafka(folder / "kafka", port=0)
    try:
        yield Bench(folder, daemon.start(postgres), daemon.start(kafka))
    finally:
        daemon.halt(kafka)
        daemon.halt(postgres)
        data = folder / "postgres" / "data"
        if data.is_symlink():
            shutil.rmtree(data.resolve(), ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
