"""Real servers for tests: each kind started once per session, on free ports, in a folder that goes with the session.

Every test gets names of its own (database, pipeline), so that tests share servers without seeing each other. A test
that breaks a server asks for a `private_server`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cdc.stack import daemon, process
from cdc.stack.kafka import Kafka
from cdc.stack.opensearch import OpenSearch
from cdc.stack.postgres import Postgres
from cdc.stack.server import Endpoint, Server
from cdc.stack.state import StackState
from cdc.stack.valkey import Valkey
from tests.support import containers
from tests.support.postgres_version import MAJOR
from tests.support.wait import wait_until

CANARY = "canary-6f1d2a"
"""Planted in rows; it must not be in any log of ours."""

BASE = Path(tempfile.gettempdir()) / f"afterimage-tests-{os.geteuid()}"
POSTGRES_SETTINGS = {"max_replication_slots": "60", "max_wal_senders": "60", "max_connections": "200"}


@dataclass(frozen=True)
class Database:
    """A database made for one test, as the superuser reaches it."""

    host: str
    port: int
    user: str
    password: str
    dbname: str

    @property
    def conninfo(self) -> str:
        return psycopg.conninfo.make_conninfo(
            host=self.host, port=self.port, user=self.user, password=self.password, dbname=self.dbname
        )

    def connect(self, **kwargs: Any) -> psycopg.Connection[Any]:
        """A connection that commits each statement."""
        return psycopg.connect(self.conninfo, autocommit=True, **kwargs)


@dataclass(frozen=True)
class PostgresServer:
    """A running cluster."""

    endpoint: Endpoint

    def database(self, dbname: str = "postgres") -> Database:
        at = self.endpoint
        return Database(at.host, at.port, at.user or "", at.password, dbname)


@dataclass
class PrivateServer:
    """A server of one test, which may kill it, stop it and start it again (on the same port)."""

    server: Server
    endpoint: Endpoint

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        os.kill(self.endpoint.process.pid, signal.SIGKILL)
        process.stop(self.endpoint.process, 30)

    def pause(self) -> None:
        os.kill(self.endpoint.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.endpoint.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        daemon.halt(self.server)

    def start(self) -> Endpoint:
        self.endpoint = daemon.start(self.server)
        return self.endpoint


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """This session's folder; sessions that died without stopping their servers are cleaned up first."""
    _make_base()
    for left in BASE.iterdir():
        if process.start_time(int(left.name.partition("-")[0])) is None:
            sweep(left)
    folder = BASE / f"{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    yield folder
    sweep(folder)


@pytest.fixture(scope="session")
def postgres(servers_folder: Path) -> Iterator[PostgresServer]:
    """The Postgres under test, with room for many slots."""
    server = Postgres(servers_folder / "postgres", major=MAJOR, port=0, settings=POSTGRES_SETTINGS)
    for endpoint in _running(server):
        yield PostgresServer(endpoint)


@pytest.fixture(scope="session")
def postgres_major(servers_folder: Path, postgres: PostgresServer) -> Iterator[Callable[[int], PostgresServer]]:
    """Postgres of another major version, started when first asked for."""
    started: dict[int, tuple[Server, PostgresServer]] = {}

    def of(major: int) -> PostgresServer:
        if major == MAJOR:
            return postgres
        if major not in started:
            folder = servers_folder / f"postgres-{major}"
            server = Postgres(folder, major=major, port=0, settings=POSTGRES_SETTINGS)
            started[major] = (server, PostgresServer(daemon.start(server)))
        return started[major][1]

    yield of
    for server, _ in started.values():
        daemon.halt(server)


@pytest.fixture(scope="session")
def kafka(servers_folder: Path) -> Iterator[Endpoint]:
    """Kafka; clients connect to `.address`."""
    yield from _running(Kafka(servers_folder / "kafka", port=0, short_lived=True))


@pytest.fixture(scope="session")
def valkey(servers_folder: Path) -> Iterator[Endpoint]:
    """Valkey, with a password."""
    yield from _running(Valkey(servers_folder / "valkey", port=0))


@pytest.fixture(scope="session")
def opensearch(servers_folder: Path) -> Iterator[Endpoint]:
    """OpenSearch, HTTP without a password."""
    yield from _running(OpenSearch(servers_folder / "opensearch", port=0, short_lived=True))


@pytest.fixture(scope="session")
def stack(postgres: PostgresServer, kafka: Endpoint, opensearch: Endpoint, valkey: Endpoint) -> StackState:
    """All four, as `up` would have left them."""
    endpoints = (postgres.endpoint, kafka, opensearch, valkey)
    return StackState(servers={endpoint.name: endpoint for endpoint in endpoints})


@pytest.fixture
def pg_database(postgres: PostgresServer) -> Iterator[Database]:
    """A new database for this test; it goes with its slots."""
    with fresh_database(postgres) as database:
        yield database


class fresh_database:  # noqa: N801
    """A database on any server, for the length of a `with`."""

    def __init__(self, server: PostgresServer) -> None:
        self._admin = server.database()
        self._made = server.database(f"test_{secrets.token_hex(5)}")

    def __enter__(self) -> Database:
        with self._admin.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self._made.dbname)))
        return self._made

    def __exit__(self, *_: object) -> None:
        with self._admin.connect() as connection:
            held = "FROM pg_replication_slots WHERE database = %s"
            connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(self._identifier))
            connection.execute(f"SELECT pg_terminate_backend(active_pid) {held} AND active", [self._made.dbname])
            drop_slots = f"SELECT pg_drop_replication_slot(slot_name) {held} AND NOT active"
            wait_until(
                lambda: (
                    connection.execute(drop_slots, [self._made.dbname])
                    and not connection.execute(f"SELECT 1 {held}", [self._made.dbname]).fetchone()
                ),
                what="the test database's slots to be released",
            )
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(self._identifier))

    @property
    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(self._made.dbname)


@pytest.fixture
def pipeline_name() -> str:
    """A pipeline name, and so a prefix of topics, indexes and keys, that no other test has."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def private_server() -> Iterator[Callable[..., PrivateServer]]:
    """`private_server(Kafka)`: a server of this test alone."""
    _make_base()
    folder = BASE / f"{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)

    def of(kind: Callable[..., Server], **options: Any) -> PrivateServer:
        if kind in (Kafka, OpenSearch):
            options.setdefault("short_lived", True)
        if kind is Postgres:
            options.setdefault("major", MAJOR)
        server = kind(folder / secrets.token_hex(4), port=0, **options)
        return PrivateServer(server, daemon.start(server))

    yield of
    sweep(folder)


def _running(server: Server) -> Iterator[Endpoint]:
    """The server for as long as the session lasts; from an image if the session was asked for that."""
    if containers.wanted():
        yield from containers.running(server)
        return
    yield daemon.start(server)
    daemon.halt(server)


def _make_base() -> None:
    BASE.mkdir(mode=0o755, exist_ok=True)
    assert BASE.stat().st_uid == os.geteuid(), f"{BASE} belongs to somebody else"


def sweep(folder: Path) -> None:
    """Stop whatever still runs out of this folder, and remove it."""
    for pid_file in folder.glob("*/pid.json"):
        process.stop(process.Process.model_validate_json(pid_file.read_bytes()), 30)
    for data in folder.glob("*/data"):
        if data.is_symlink():
            shutil.rmtree(data.resolve(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
