"""One table read whole while the pipeline stands elsewhere: its rows as of one position of the log.

In: settings and the table's oid. Out: batches of records that void what the topic held before. Keeps true: the rows are
exactly those that had committed before the position, in the shape that the table had there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.catalog import relation_by_oid
from cdc.changes import Change, Op, Origin, Record, Relation
from cdc.envelope import TableEncoder
from cdc.errors import TransientError
from cdc.names import quote_ident
from cdc.postgres import connect
from cdc.privacy import Privacy
from cdc.settings import Settings
from cdc.sqlstate import translated
from snapshot.copy_records import copy_records
from snapshot.cut import cut_of_source
from snapshot.table_source import copy_statement, table_source

_CUT_TIMEOUT_S: Final = 20.0
_LOCK_TIMEOUT: Final = "5s"


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table at `lsn`, for as long as its connection's transaction lives."""

    lsn: int
    relation: Relation
    connection: psycopg.Connection[Any]
    privacy: Privacy

    def batches(self, encoder: TableEncoder) -> Iterator[list[Record]]:
        """A truncate, then every row: positions before everything that commits at `lsn` or later."""
        origin = Origin(self.lsn - 1, None, time.time_ns() // 1000)
        now_ms = origin.commit_ts_us // 1000
        yield encoder.change_records(Change(Op.TRUNCATE, self.relation, None, None), origin, 0, now_ms)
        with translated():
            statement = copy_statement(table_source(self.connection, self.relation), self.relation, self.privacy)
            for copied in copy_records(self.connection, statement, encoder, origin):
                yield copied.records


@contextmanager
def table_at_cut(settings: Settings, oid: int, privacy: Privacy) -> Iterator[TableRows]:
    """The table at a position of the server's choice, which is now."""
    with cut_of_source(settings, timeout_s=_CUT_TIMEOUT_S, application="afterimage snapshot") as cut:
        relation = relation_by_oid(cut.connection, oid)
        if relation is None:
            raise _altered()
        # The catalogue is followed at once, rows by the snapshot: from here on both must stand still together.
        with translated():
            cut.connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'".encode())
            cut.connection.execute(f"LOCK TABLE {_sql(relation)} IN ACCESS SHARE MODE".encode())
        with connect(settings.source, settings.source.read, application="afterimage catalogue") as now:
            if relation_by_oid(now, oid) != relation:
                raise _altered()
        yield TableRows(cut.lsn, relation, cut.connection, privacy)


def _altered() -> TransientError:
    return TransientError("the table was altered just when it was to be read", "it is read again", code="TABLE_ALTERED")


def _sql(relation: Relation) -> str:
    return f"{quote_ident(relation.schema)}.{quote_ident(relation.name)}"
