"""A source as users have it: a database with tables, the two roles and the publication, made by the product's own fix.

Everything here runs with the least privileges: whoever needs the superuser uses `source.admin` on purpose.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cdc.check.fix import fix
from cdc.postgres import connect
from cdc.settings import Role, Settings, Source
from tests.support.servers import Database

HOSTILE_TABLE = '"; drop table x; --/../é'
HOSTILE_SCHEMA = "we.ird *Schema"
TABLES = f"""
CREATE TABLE public.orders (
    id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(10,2), paid boolean, at timestamptz DEFAULT now()
);
CREATE TABLE public.order_items (
    order_id bigint, line int, product text, quantity int, PRIMARY KEY (line, order_id)
);
CREATE TABLE public.documents (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), body text, tags text[], meta jsonb);
ALTER TABLE public.documents REPLICA IDENTITY FULL;
CREATE TABLE public.events (id int, day date, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE public.events_2025 PARTITION OF public.events FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE public.events_later PARTITION OF public.events DEFAULT;
CREATE SCHEMA {sql.Identifier(HOSTILE_SCHEMA).as_string()};
CREATE TABLE {sql.Identifier(HOSTILE_SCHEMA, HOSTILE_TABLE).as_string()} (
    "Key "" 1" text, "select" int, "a.b`c" text, "é %s {{}}" text, PRIMARY KEY ("Key "" 1", "select")
);
CREATE TABLE public.secrets (id int PRIMARY KEY, password text);
"""


def hostile_password() -> str:
    """A password that breaks whoever does not quote."""
    return f"p'w\" \\ é$ {secrets.token_urlsafe(12)}"


@contextmanager
def prepared_source(
    database: Database, pipeline: str, folder: Path, *, ddl: str = TABLES, **source: Any
) -> Iterator[Settings]:
    """Run `ddl`, choose roles; they go again afterwards."""
    settings = settings_for(database, pipeline, folder, ddl=ddl, **source)
    try:
        yield settings
    finally:
        drop_roles(settings, database)


def settings_for(database: Database, pipeline: str, folder: Path, *, ddl: str = TABLES, **source: Any) -> Settings:
    """Run `ddl`; the settings of a pipeline with roles of its own, not yet made."""
    mark = secrets.token_hex(5)
    with database.connect() as connection:
        connection.execute(ddl)
    return Settings(
        pipeline=pipeline,
        data=folder / "data",
        views=folder / "views",
        source=Source(
            **{
                "host": database.host,
                "port": database.port,
                "database": database.dbname,
                "stream": Role(user=f"Stream {mark}", password=hostile_password()),
                "read": Role(user=f"read-{mark}", password=hostile_password()),
                "admin": Role(user=database.user, password=database.password),
                "tables": ("public.*", '"we.ird *Schema".*'),
                "exclude": ("public.secrets",),
                **source,
            }
        ),
    )


def drop_roles(settings: Settings, database: Database) -> None:
    """Roles belong to the cluster, so they would outlive the database."""
    with database.connect() as connection:
        for role in (settings.source.stream, settings.source.read):
            name = sql.Identifier(role.user)
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role.user]).fetchone():
                connection.execute(sql.SQL("DROP OWNED BY {}").format(name))
                connection.execute(sql.SQL("DROP ROLE {}").format(name))


@pytest.fixture
def bare_source(pg_database: Database, pipeline_name: str, tmp_path: Path) -> Iterator[Settings]:
    """Settings for a database with tables, before anything was prepared."""
    with prepared_source(pg_database, pipeline_name, tmp_path) as settings:
        yield settings


@pytest.fixture
def source(bare_source: Settings) -> Settings:
    """Settings for a database that is ready to be captured."""
    fix(bare_source)
    return bare_source


@pytest.fixture
def admin(bare_source: Settings) -> Iterator[psycopg.Connection[Any]]:
    """The superuser in the source's database, committing each statement."""
    assert bare_source.source.admin is not None
    with connect(bare_source.source, bare_source.source.admin) as connection:
        yield connection
