"""What becomes of a table's shape while the log is followed: its schema record, or the reason why it stops alone.

In: shapes as the log and chunks bring them, tables read to their end. Out: schema records, Left. Keeps true: what was
announced is what later shapes are compared with; a table that is being read is announced when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc.backfill import Backfill
from cdc.changes import Relation, Trouble
from cdc.effects import Left
from cdc.evolution import unreadable, verdict
from cdc.progress import Stop
from cdc.schema_record import SchemaRecord
from cdc.tables import Tables


class Announcing:
    """One session's; `tell` puts a schema record into the open Kafka transaction."""

    def __init__(self, tables: Tables, tell: Callable[[SchemaRecord], None]) -> None:
        self._tables = tables
        self._tell = tell
        self._announced = {oid: tables.privacy.published(relation) for oid, relation in tables.relations.items()}
        self.must_look = False
        """Whether a new session has something to do when this is committed."""

    def announce(self, relation: Relation, lsn: int, stopped: Mapping[str, Stop]) -> Left | None:
        """Whether rows of this shape may follow; `stopped` as the next progress record says."""
        before = self._announced.get(relation.oid)
        if before is None:
            # Published without being configured, or made since this session began.
            self.must_look = self.must_look or relation.oid not in self._tables.seen
            return Left(self._tables.topic(relation))
        record = self._tables.schema_record(relation, lsn)
        if before == record.relation:  # its rules alone set it apart from what the log says
            return None
        found = verdict(before, record.relation)
        if found.trouble is not None:
            return self.leave(before, found.trouble, lsn)
        self._announced[relation.oid] = record.relation
        stop = stopped.get(record.topic)
        if stop is None or not stop.is_read:  # else its rows are not to be seen yet, nor is its shape
            self._tell(record)
        return None

    def leave(self, relation: Relation, trouble: Trouble, lsn: int) -> Left:
        """The table stops alone; a new session looks whether it can be read again."""
        record = self._tables.schema_record(self._announced.get(relation.oid, relation), lsn, trouble)
        self._tell(record)
        self.must_look = True
        return Left(record.topic)

    def joined(self, backfill: Backfill, failure: str | None, lsn: int) -> None:
        """The shape in which its rows are in the topic now; or why they are not."""
        relation = self._announced[backfill.oid]
        if failure is None:
            self.must_look = True
        self._tell(self._tables.schema_record(relation, lsn, unreadable(relation, failure) if failure else None))
