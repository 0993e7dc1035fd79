"""One chunk of a table, read in a transaction of its own.

In: a connection, a table and the key to begin after. Out: the rows up to some key, with what their snapshot sees.
Keeps true: the table's shape holds from before the snapshot until the rows are read; no transaction outlasts a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.backfill import Backfill, Chunk, Key, RowImage
from cdc.catalog import relation_by_oid
from cdc.changes import Relation
from cdc.errors import OperatorError
from cdc.lsn import parse_lsn
from cdc.sqlstate import translated
from cdc.tables import Tables
from cdc.visibility import Visibility
from snapshot.copy_text import parse_line
from snapshot.key_order import KeyOrder
from snapshot.table_source import copy_statement, table_source

_ATTEMPTS: Final = 5
_NOW: Final = "SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_current_wal_insert_lsn()::text"


@dataclass(frozen=True, slots=True)
class Range:
    """The keys of a chunk: those after `begin`, up to `end` if that was chosen before, else about `rows` of them."""

    begin: Key | None
    end: Key | None
    is_planned: bool
    rows: int


@dataclass(frozen=True, slots=True)
class Told:
    """What the keeper of the readers hears meanwhile: the chunk's snapshot, then where it ends."""

    sees: Callable[[Visibility], None]
    ends: Callable[[Key | None], None]


class ChunkReader:
    """Reads over one connection of the `read` role."""

    def __init__(self, connection: psycopg.Connection[Any], tables: Tables) -> None:
        self._connection = connection
        self._tables = tables

    def read(self, backfill: Backfill, wanted: Range, told: Told) -> Chunk | None:
        """The chunk; None when there is no such table any more."""
        connection = self._connection
        for _ in range(_ATTEMPTS):
            relation = relation_by_oid(connection, backfill.oid)
            if relation is None:
                return None
            with translated():
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    if self._lock(relation):
                        return self._read(backfill, wanted, told, relation)
                finally:
                    connection.execute("ROLLBACK")
        raise _restless(backfill)

    def _lock(self, relation: Relation) -> bool:
        """Keep the table's shape as it is; false when it has just become another."""
        # Before the snapshot: where a table was rewritten, the rows of an older snapshot seem to be gone.
        try:
            self._connection.execute(
                f"LOCK TABLE {table_source(self._connection, relation)} IN ACCESS SHARE MODE".encode()
            )
        except psycopg.errors.UndefinedTable:
            return False
        return relation_by_oid(self._connection, relation.oid) == relation

    def _read(self, backfill: Backfill, wanted: Range, told: Told, relation: Relation) -> Chunk:
        connection = self._connection
        row = connection.execute(_NOW).fetchone()
        assert row is not None
        sees, after_lsn = Visibility.parse(row[0]), parse_lsn(row[1])
        told.sees(sees)
        order = KeyOrder.of(connection, relation.oid)
        if order is None:
            raise _unordered(relation)
        source = table_source(connection, relation)
        end = wanted.end if wanted.is_planned else self._end(order, source, wanted)
        told.ends(end)
        condition = _condition(order, wanted.begin, end, backfill.where)
        rows = self._rows(relation, copy_statement(source, relation, self._tables.privacy, condition))
        return Chunk(backfill.id, relation, wanted.begin, end, rows, sees, after_lsn)

    def _end(self, order: KeyOrder, source: str, wanted: Range) -> Key | None:
        """The key of the row that is so many further on; None where there are not so many left."""
        condition = f" WHERE {order.after(wanted.begin)}" if wanted.begin is not None else ""
        query = (
            f"SELECT {order.columns} FROM {source}{condition} "  # noqa: S608  names and values are quoted
            f"ORDER BY {order.columns} OFFSET {wanted.rows - 1} LIMIT 1"
        )
        result = self._connection.execute(query.encode()).pgresult
        if result is None or not result.ntuples:
            return None
        # As Postgres sent them: a cast to text would drop the blanks of char(n).
        values = [result.get_value(0, at) for at in range(result.nfields)]
        return tuple((value or b"").decode() for value in values)

    def _rows(self, relation: Relation, statement: bytes) -> list[RowImage]:
        image = self._tables.encoder(relation).read_image
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            return [image(parse_line(bytes(line))) for line in copy]


def _condition(order: KeyOrder, begin: Key | None, end: Key | None, where: str | None) -> str:
    conditions = [
        order.after(begin) if begin is not None else "",
        order.until(end) if end is not None else "",
        # The operator's own SQL, run read-only as the `read` role.
        f"({where}\n)" if where is not None else "",
    ]
    found = [text for text in conditions if text]
    return f" WHERE {' AND '.join(found)}" if found else ""


def _restless(backfill: Backfill) -> OperatorError:
    return OperatorError(
        f"table {backfill.qualified} changes its shape again and again",
        "start capture again when whatever alters it has ended",
        code="SCHEMA_CHANGED",
    )


def _unordered(relation: Relation) -> OperatorError:
    return OperatorError(
        f"the primary key of {relation.qualified} has no order, so the table cannot be read in chunks",
        "only the first snapshot can read it, in one piece",
        code="NO_KEY_ORDER",
    )
