"""The sample shop: a database with five tables and 60,500 rows, made the same on every machine.

In: the source with its admin role. Out: the database, filled, or left alone where it exists already.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from cdc.errors import ConfigError
from cdc.postgres import connect
from cdc.resources import config_file
from cdc.settings import Settings, Source
from cdc.sqlstate import translated


@contextmanager
def admin_connection(source: Source) -> Iterator[psycopg.Connection[Any]]:
    """As the owner of the shop, with the search path that an application has."""
    if source.admin is None:
        raise ConfigError("the shop needs source.admin", "set it, or let `embedded: true` do so")
    with connect(source, source.admin, application="afterimage shop") as connection, translated():
        connection.execute("SET search_path = public")
        yield connection


def make_database(settings: Settings) -> bool:
    """Create source.database where it is missing; whether it was."""
    source = settings.source
    with admin_connection(source.model_copy(update={"database": "postgres"})) as connection:
        exists = connection.execute("SELECT 1 FROM pg_catalog.pg_database WHERE datname = %s", (source.database,))
        if exists.fetchone():
            return False
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(source.database)))
        return True


def fill_shop(settings: Settings) -> int:
    """Make the tables and their rows; how many rows there are."""
    with admin_connection(settings.source) as connection:
        for name in ("shop/schema.sql", "shop/data.sql"):
            connection.execute(config_file(name).read_bytes())
        total = 0
        for table in ("customers", "products", "orders", "order_items", "payments"):
            row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchone()
            total += row[0] if row else 0
        return total
