"""Tables that somebody wants to be read again while the stream goes on.

In: requests on the topic `_snapshots`. Out: tables to begin with, refusals, and the answers' records. Keeps true: what
was answered by this process is not begun again, whenever it reads of it.
"""

from __future__ import annotations

import time
from typing import Final

from cdc.backfill import Backfill
from cdc.changes import Record
from cdc.merging import GivenUp
from cdc.names import topic_name
from cdc.settings import Settings
from cdc.tables import Tables
from snapshot.requests import RequestLog, SnapshotRequest, State

_LOOK_EVERY_S: Final = 0.2


class AskedTables:
    """Follows the requests; used by one thread."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        self._settings = settings
        self._tables = tables
        self._requests: RequestLog | None = None
        self._answered: set[str] = set()
        self._looked_s = 0.0

    def news(self) -> tuple[list[Backfill], list[GivenUp]]:
        """What was asked for since, and what of it cannot be done; tables that are read already come once more."""
        if time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return [], []
        self._looked_s = time.monotonic()
        if self._requests is None:
            self._requests = RequestLog(self._settings)
        asked = [
            self._backfill(request)
            for request in self._requests.newest()
            if request.state is State.REQUESTED and request.id not in self._answered
        ]
        refusals = {backfill.id: self._refusal(backfill) for backfill in asked}
        refused = [GivenUp(backfill, reason) for backfill in asked if (reason := refusals[backfill.id])]
        return [backfill for backfill in asked if not refusals[backfill.id]], refused

    def answer(self, backfill: Backfill, failure: str | None) -> Record | None:
        """What to write for whoever asked; nobody asked for a first snapshot, or for a table to join."""
        if backfill.initial or backfill.joins:
            return None
        self._answered.add(backfill.id)
        request = SnapshotRequest(
            backfill.id,
            backfill.schema,
            backfill.table,
            backfill.where,
            backfill.estimated_rows,
            backfill.started_us // 1000,
        )
        return request.answered(backfill.rows, failure).record(self._settings.pipeline)

    def close(self) -> None:
        """Leave the broker."""
        if self._requests is not None:
            self._requests.close()

    def _backfill(self, request: SnapshotRequest) -> Backfill:
        named = (request.schema, request.table)
        relations = self._tables.relations.values()
        oid = next((relation.oid for relation in relations if (relation.schema, relation.name) == named), 0)
        return Backfill(
            id=request.id,
            oid=oid,
            schema=request.schema,
            table=request.table,
            topic=topic_name(self._settings.pipeline, request.schema, request.table),
            initial=False,
            where=request.where,
            estimated_rows=request.estimated_rows,
            started_us=time.time_ns() // 1000,
        )

    def _refusal(self, backfill: Backfill) -> str | None:
        relation = self._tables.relations.get(backfill.oid)
        if relation is None:
            return "this table is not captured"
        return "a column of its key is hashed or masked" if self._tables.conceals_key(relation) else None
