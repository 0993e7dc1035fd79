"""A streaming standby of a test's own Postgres: its data folder copied between pg_backup_start and pg_backup_stop."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from cdc.check.fix import fix
from cdc.lsn import parse_lsn
from cdc.postgres import connect
from cdc.settings import Kafka, Settings
from cdc.stack import daemon
from cdc.stack.account import give, own_folder, unprivileged
from cdc.stack.postgres import Postgres
from tests.support.capturing import insert_lsn
from tests.support.servers import PostgresServer, PrivateServer
from tests.support.source import settings_for
from tests.support.wait import wait_until

STANDBY_SLOT = "standby"
NOT_COPIED = ("postmaster.pid", "postmaster.opts", "pg_replslot", "pg_wal", "afterimage.conf")


@dataclass
class Standby:
    """A standby; `promote` makes it the primary."""

    server: PrivateServer

    def connect(self, dbname: str = "postgres") -> psycopg.Connection[Any]:
        at = self.server.endpoint
        return psycopg.connect(
            host=at.host, port=at.port, user=at.user, password=at.password, dbname=dbname, autocommit=True
        )

    def catch_up(self, lsn: int) -> None:
        with self.connect() as connection:
            wait_until(lambda: replayed(connection) >= lsn, what="the standby to replay", timeout_s=60)

    def promote(self) -> None:
        with self.connect() as connection:
            connection.execute("SELECT pg_promote(true, 60)")
            wait_until(
                lambda: connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,),
                what="the standby to be promoted",
                timeout_s=60,
            )


def replayed(connection: psycopg.Connection[Any]) -> int:
    [text] = connection.execute("SELECT coalesce(pg_last_wal_replay_lsn(), '0/0')::text").fetchone()
    return parse_lsn(text)


def standby_of(primary: PrivateServer, folder: Path, major: int, **settings: str) -> Standby:
    """Copy, start, follow."""
    at = primary.endpoint
    assert at.password_file is not None
    folder.mkdir(mode=0o755)
    shutil.copy(at.password_file, folder / "password")
    data = own_folder(folder / "data", unprivileged())
    with psycopg.connect(
        host=at.host, port=at.port, user=at.user, password=at.password, dbname="postgres", autocommit=True
    ) as connection:
        connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", [STANDBY_SLOT])
        connection.execute("SELECT pg_backup_start('standby', true)")
        _copy(primary.server.folder / "data", data)
        _, label, _ = connection.execute("SELECT * FROM pg_backup_stop(false)").fetchone()
    (data / "backup_label").write_text(label)
    (data / "standby.signal").touch()
    (data / "pg_wal" / "archive_status").mkdir(parents=True)
    (data / "pg_replslot").mkdir()
    _own(data)
    conninfo = f"host={at.host} port={at.port} user={at.user} password={at.password} dbname=postgres"
    following = {
        "primary_conninfo": conninfo,
        "primary_slot_name": STANDBY_SLOT,
        "hot_standby_feedback": "on",
        "wal_receiver_status_interval": "1s",
        "wal_retrieve_retry_interval": "200ms",
        **settings,
    }
    server = Postgres(folder, major=major, port=0, settings=following)
    return Standby(PrivateServer(server, daemon.start(server)))


def source_on(primary: PrivateServer, kafka: Any, folder: Path, pipeline: str) -> Settings:
    with PostgresServer(primary.endpoint).database().connect() as connection:
        connection.execute("CREATE DATABASE shop")
    settings = settings_for(PostgresServer(primary.endpoint).database("shop"), pipeline, folder)
    fix(settings)
    return settings.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})


def moved_to(settings: Settings, standby: Standby) -> Settings:
    port = standby.server.endpoint.port
    return settings.model_copy(update={"source": settings.source.model_copy(update={"port": port})})


def as_admin(settings: Settings) -> Any:
    assert settings.source.admin is not None
    return connect(settings.source, settings.source.admin)


def insert(admin: Any, first: int, last: int) -> int:
    admin.execute("INSERT INTO public.orders SELECT g, 'c' || g, 1 FROM generate_series(%s::int, %s) g", [first, last])
    return insert_lsn(admin)


def _copy(source: Path, target: Path) -> None:
    def skipped(folder: str, names: list[str]) -> set[str]:
        return set(NOT_COPIED) & set(names) if Path(folder) == source.resolve() else set()

    def copied(one: str, other: str) -> None:
        try:
            shutil.copy2(one, other)
        except FileNotFoundError:
            return  # Postgres removed it meanwhile, and replaying its log will too

    shutil.copytree(source.resolve(), target, ignore=skipped, copy_function=copied, dirs_exist_ok=True)
    main = target / "postgresql.conf"
    main.write_text("".join(line for line in main.read_text().splitlines(True) if "afterimage.conf" not in line))


def _own(data: Path) -> None:
    account = unprivileged()
    for folder, _, files in os.walk(data):
        give(account, Path(folder), *(Path(folder) / name for name in files))
    data.chmod(0o700)
