"""What a server says of its lineage, and a guard for capture from a standby, whose timeline may change under it.

In: a replication connection. Out: a Lineage; TIMELINE_CHANGED, after which capture starts over. Keeps true: a progress
record names the timeline that its position was read on; a primary's cannot change while it runs.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import psycopg

from cdc.errors import TransientError
from cdc.lineage import Lineage, parse_history
from cdc.replication import ReplicationConnection
from cdc.settings import Source
from cdc.sqlstate import translated


def read_lineage(connection: ReplicationConnection, database_oid: int) -> Lineage:
    """The server's identity with its timeline's history."""
    timeline = connection.timeline()
    switches = parse_history(connection.timeline_history(timeline))
    return Lineage(connection.identify(), timeline, database_oid, switches, connection.is_standby)


def database_oid(connection: psycopg.Connection[Any]) -> int:
    """The OID of the database that we are in."""
    with translated():
        row = connection.execute(
            "SELECT oid::int8 FROM pg_catalog.pg_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


class TimelineGuard:
    """`check` before each commit: on a standby it asks the server, on a primary it has nothing to do."""

    def __init__(self, source: Source, lineage: Lineage) -> None:
        self._source = source
        self._lineage = lineage
        self._connection: ReplicationConnection | None = None

    def __enter__(self) -> TimelineGuard:
        if self._lineage.is_standby:
            self._connection = ReplicationConnection(self._source, self._source.stream, application="afterimage guard")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.close()

    def check(self) -> None:
        """Nothing of a new timeline has been read under the old one's name."""
        if self._connection is not None and self._connection.timeline() != self._lineage.timeline:
            raise TransientError(
                "the standby follows another timeline now, or was promoted",
                "capture starts over",
                code="TIMELINE_CHANGED",
            )
