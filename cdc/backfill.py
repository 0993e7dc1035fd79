"""A table being read in chunks while the log is followed: how far it is, and one chunk of its rows.

In: chunks' ends. Out: the state that each progress record carries, and back. Keeps true: chunks are put into the topic
in key order, so one key says what is finished; keys are compared for equality alone, their order is the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc.changes import Relation
from cdc.visibility import Visibility

Key = tuple[str, ...]
"""Key values as Postgres prints them, in the order of the key's index."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """One table's reading, up to the key `done` so far.

    `initial`: no view may stand before it is done. `joins`: no view of this table may, the others flow on.
    """

    id: str
    oid: int
    schema: str
    table: str
    topic: str
    initial: bool
    where: str | None = None
    done: Key | None = None
    rows: int = 0
    estimated_rows: int = 0
    started_us: int = 0
    joins: bool = False

    @property
    def qualified(self) -> str:
        """`schema.table`, for people."""
        return f"{self.schema}.{self.table}"

    @property
    def share(self) -> float | None:
        """About how much of it is read, 0 to 1; None where nobody knows how many rows there are."""
        return min(1.0, self.rows / self.estimated_rows) if self.estimated_rows else None

    def eta_s(self, now_us: int) -> float | None:
        """About how long it takes yet, at the rate so far."""
        if not self.rows or not self.estimated_rows:
            return None
        return max(0.0, (now_us - self.started_us) / 1e6 * (self.estimated_rows - self.rows) / self.rows)

    def after(self, chunk: Chunk, rows: int) -> Backfill | None:
        """The state with one more chunk in the topic; None when that was the last one."""
        assert chunk.begin == self.done, "chunks are merged in key order"
        return replace(self, done=chunk.end, rows=self.rows + rows) if chunk.end is not None else None

    def to_json(self) -> dict[str, Any]:
        """As in a progress record."""
        return {
            "id": self.id,
            "oid": self.oid,
            "schema": self.schema,
            "table": self.table,
            "topic": self.topic,
            "initial": self.initial,
            "where": self.where,
            "done": list(self.done) if self.done is not None else None,
            "rows": self.rows,
            "estimated_rows": self.estimated_rows,
            "started_us": self.started_us,
            **({"joins": True} if self.joins else {}),
        }

    @staticmethod
    def from_json(body: dict[str, Any]) -> Backfill:
        """The inverse of to_json; KeyError, TypeError or ValueError for anything else."""
        where, done = body["where"], body["done"]
        return Backfill(
            id=str(body["id"]),
            oid=int(body["oid"]),
            schema=str(body["schema"]),
            table=str(body["table"]),
            topic=str(body["topic"]),
            initial=bool(body["initial"]),
            where=None if where is None else str(where),
            done=None if done is None else tuple(str(value) for value in done),
            rows=int(body["rows"]),
            estimated_rows=int(body["estimated_rows"]),
            started_us=int(body["started_us"]),
            joins=bool(body.get("joins", False)),
        )


# Not frozen, as Change: one is made for each row.
@dataclass(slots=True)
class RowImage:
    """A row but for its position: the record's key and partition, and the beginning of its value."""

    key: bytes
    partition: int
    head: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """The rows with begin < key <= end (`end` None: all that follow), as one snapshot of Postgres saw them.

    `after_lsn` lies behind every transaction that the snapshot sees.
    """

    backfill: str
    relation: Relation
    begin: Key | None
    end: Key | None
    rows: Sequence[RowImage]
    sees: Visibility
    after_lsn: int
