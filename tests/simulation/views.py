"""The views of the simulated pipeline and what they must show: a mirror of each table, row-wise views in three sinks.

In: a table's rows. Out: a view's rows. And `read_changes`, which reads a range of a topic as jobs/changes.py does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdc.errors import TransientError
from jobs.batch import Target
from jobs.twins import live_name
from tests.simulation.broker import Broker
from tests.simulation.declaring import Print
from tests.simulation.queries import ADDED_QUERIES, due
from tests.simulation.source import State
from tests.simulation.tables import ACCOUNTS, LINES, OIDS, TAGS, TOPICS, Seen, Values

Rows = Mapping[str, Values]

TARGETS: Final = (
    Target("accounts", "delta", TOPICS[ACCOUNTS.oid]),
    Target("lines", "delta", TOPICS[LINES.oid]),
    Target("tags", "delta", TOPICS[TAGS.oid]),
    Target("known", "delta", TOPICS[ACCOUNTS.oid]),
    Target("known", "search", TOPICS[ACCOUNTS.oid]),
    Target("known", "cache", TOPICS[ACCOUNTS.oid]),
    Target("stock", "cache", TOPICS[LINES.oid]),
)

ADDED: Final = (
    Target("few", "delta", TOPICS[LINES.oid]),
    Target("few", "search", TOPICS[LINES.oid]),
    Target("few", "cache", TOPICS[LINES.oid]),
    *ADDED_QUERIES,
)
"""Of views whose files come later."""
ADDITIONS: Final = (("few",), ("most",), ("most", "best"), ("best",))
"""What comes at once; a query reads what is there, or comes with it."""


def projected(view: str, declared: Print, row: Values) -> Values | None:
    """The view's row of a table's row; None when the filter refuses it. A twin is as its view."""
    view, (variant, *_) = live_name(view), declared
    if view == "known":
        identity, name, note, extra = row
        shown = (identity, f"{name}{'?' if variant else '!'}", extra)
        return shown if isinstance(name, str) and (name < "n" or variant) and note is not None else None
    if view == "few":
        return row[:3] if isinstance(row[2], int) and row[2] < 3 + variant else None
    if view == "stock":
        return row[:3] if isinstance(row[2], int) and row[2] > 2 - variant else None
    return row


def expected_rows(target: Target, declared: Print, state: State) -> dict[str, Values] | None:
    """What the view must show of this state of the source; None where it is a query that fails."""
    if target.is_derived:
        return due(target.view, declared, state)
    shown = ((key, projected(target.view, declared, row)) for key, row in state[OIDS[target.topic]].items())
    return {key: row for key, row in shown if row is not None}


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """The last change of each key: (commit LSN, row or None). `truncated`: the upserts are the whole content."""

    changes: Mapping[str, tuple[int, Values | None]]
    truncated: bool

    @property
    def upserts(self) -> dict[str, tuple[int, Values | None]]:
        """The rows that are there."""
        return {key: change for key, change in self.changes.items() if change[1] is not None}


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of each partition, positions [floor, ceiling)."""

    start: tuple[int, ...]
    end: tuple[int, ...]
    floor: int
    ceiling: int

    def holds(self, record: Seen) -> bool:
        """Whether apply takes it."""
        return self.floor <= record.lsn < self.ceiling


def read_changes(broker: Broker, target: Target, declared: Print, wanted: Range) -> ViewChanges:
    """The last change per key of whole, committed transactions."""
    last: dict[str, Seen] = {}
    truncated = False
    for number, partition in enumerate(broker.topics[target.topic]):
        if partition.stable_end < wanted.end[number]:
            raise TransientError("the range is not readable yet")
        newest, truncate = _last_per_key(
            [entry.seen for _, entry in partition.committed(wanted.start[number], wanted.end[number])], wanted
        )
        truncated |= truncate is not None
        last |= newest
    changes = {key: (record.lsn, _row(target.view, declared, record)) for key, record in last.items()}
    return ViewChanges(changes, truncated)


def _last_per_key(records: list[Seen], wanted: Range) -> tuple[dict[str, Seen], Seen | None]:
    newest: dict[str, Seen] = {}
    for record in records:
        if wanted.holds(record):
            before = newest.get(record.key)
            if before is None or (record.lsn, record.ordinal) >= (before.lsn, before.ordinal):
                newest[record.key] = record
    truncate = newest.pop("{}", None)
    if truncate is not None:
        at = truncate.lsn, truncate.ordinal
        newest = {key: record for key, record in newest.items() if (record.lsn, record.ordinal) >= at}
    return newest, truncate


def _row(view: str, declared: Print, record: Seen) -> Values | None:
    return projected(view, declared, record.after) if record.after is not None else None
