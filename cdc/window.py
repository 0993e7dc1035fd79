"""What the log changed while chunks of tables are being read, so that a chunk's stale rows are left out.

In: the records of each transaction with its id, and chunks with what their snapshot sees. Out: the rows of a chunk that
no transaction unseen by it has changed. Keeps true: the memory is bounded, and what is forgotten every chunk sees.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from cdc.backfill import Chunk, RowImage
from cdc.changes import Record
from cdc.envelope import TRUNCATE_KEY
from cdc.visibility import Visibility, newest


@dataclass(slots=True)
class _Changed:
    """What one transaction changed, by topic."""

    xid: int
    keys: dict[str, set[bytes]] = field(default_factory=dict)


class Window:
    """Keys of recent transactions that some chunk, read or being read, may not see."""

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._watched: frozenset[str] = frozenset()
        self._oldest: Sequence[Visibility] = ()
        self._recent: list[_Changed] = []
        self._kept = 0
        self._beyond: int | None = None
        """The youngest transaction of which not every key was kept."""

    def watch(self, topics: Collection[str]) -> None:
        """From now on remember the changes of these topics; with none, forget all."""
        self._watched = frozenset(topics)
        if not topics:
            self._oldest, self._recent, self._kept, self._beyond = (), [], 0, None

    def remember(self, xid: int | None, records: Sequence[Record]) -> None:
        """Records of a transaction that has committed."""
        assert xid is not None
        for record in records:
            if record.topic in self._watched:
                self._keep(xid, record)

    def forget_seen(self, oldest: Sequence[Visibility]) -> None:
        """Forget what all of these see: no chunk comes that was read in an older snapshot."""
        if not oldest or oldest == self._oldest:
            return
        self._oldest = oldest
        self._recent = [changed for changed in self._recent if not self._seen(changed.xid)]
        self._kept = sum(len(keys) for changed in self._recent for keys in changed.keys.values())
        if self._beyond is not None and all(snapshot.sees_until(self._beyond) for snapshot in oldest):
            self._beyond = None

    def current(self, chunk: Chunk, topic: str) -> Sequence[RowImage] | None:
        """The chunk's rows that still hold; None when that is not known any more, and it must be read again."""
        if self._beyond is not None and not chunk.sees.sees_until(self._beyond):
            return None
        unseen = [changed for changed in self._recent if not chunk.sees.sees(changed.xid)]
        stale: set[bytes] = set().union(*(changed.keys.get(topic, ()) for changed in unseen))
        if TRUNCATE_KEY in stale:
            return ()
        return [row for row in chunk.rows if row.key not in stale] if stale else chunk.rows

    def _keep(self, xid: int, record: Record) -> None:
        if not self._recent or self._recent[-1].xid != xid:
            if self._oldest and self._seen(xid):
                return
            self._recent.append(_Changed(xid))
        keys = self._recent[-1].keys.setdefault(record.topic, set())
        if record.key in keys:
            return
        if self._kept >= self._keys_max:
            self._beyond = xid if self._beyond is None else newest(xid, self._beyond)
            if not self._recent[-1].keys[record.topic]:
                self._recent.pop()
            return
        keys.add(record.key)
        self._kept += 1

    def _seen(self, xid: int) -> bool:
        return all(snapshot.sees(xid) for snapshot in self._oldest)
