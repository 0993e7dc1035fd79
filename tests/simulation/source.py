"""A model of Postgres: committed transactions in commit order, the state after each, one slot.

In: random statements. Out: transactions as pgoutput messages with the records that they must become, and the source as
it was at any LSN. Keeps true: only committed work is in the log; what the slot has confirmed is never sent again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cdc.changes import UNCHANGED, Change, Relation, Trouble
from cdc.errors import TransientError
from cdc.pgoutput import RelationMessage
from cdc.visibility import Visibility
from tests.simulation.tables import (
    ACCOUNTS,
    EXTRA,
    INT4,
    LINES,
    PARTITIONS,
    TAGS,
    TOPICS,
    WIDER_ACCOUNTS,
    Seen,
    Texts,
    Values,
    key_text,
    partition,
    rewritten,
    rewritten_row,
    values,
)
from tests.simulation.world import World, require
from tests.support import frames

if TYPE_CHECKING:
    from tests.simulation.walsender import Walsender

SYSTEM_ID: Final = "7000000000000000001"
FIRST_LSN: Final = 0x1000
WORDS: Final = ("ash", "birch", "cedar", "ölm", 'f"ir', "", "oak", "pine", "yew")

State = dict[int, dict[str, Values]]


@dataclass(slots=True)
class Transaction:
    """A committed transaction: its messages, and for each change the records due in (topic, partition)."""

    xid: int
    commit_lsn: int
    end_lsn: int
    ts_us: int
    shapes: tuple[Relation, ...]
    """What the tables looked like."""
    messages: list[tuple[list[Relation], bytes]] = field(default_factory=list)
    changes: list[list[tuple[str, int, Seen]]] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Slot:
    """The replication slot; `saved` is what would survive a crash of Postgres."""

    confirmed: int
    saved: int
    reader: Walsender | None = None


class Source:
    """The database, its log and its slot."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wal_end = FIRST_LSN
        self.transactions: list[Transaction] = []
        self._commits: list[int] = []
        self.relations = {relation.oid: relation for relation in (ACCOUNTS, LINES, TAGS)}
        self._shapes = {_described(relation): relation for relation in (ACCOUNTS, WIDER_ACCOUNTS, LINES, TAGS)}
        self.captured = {relation.oid for relation in (ACCOUNTS, LINES, TAGS)}
        self.stuck: dict[int, Trouble] = {}
        self.is_left_out: Callable[[int], bool] = lambda _: False
        """Whether the topics say that a table has stopped."""
        self.rows: dict[int, dict[str, Texts]] = {oid: {} for oid in self.relations}
        self.states: list[State] = [{oid: {} for oid in self.relations}]
        self.slot: Slot | None = None
        self.durable_lsn = 0
        self._xid = 500
        self._open: list[int] = []
        self._hidden: dict[int, dict[tuple[int, str], Texts | None]] = {}

    def state_at(self, lsn: int) -> State:
        """Everything that committed before `lsn`."""
        return self.states[bisect_left(self._commits, lsn)]

    def first_from(self, lsn: int) -> int:
        """The number of the first transaction whose commit record is at `lsn` or later."""
        return bisect_left(self._commits, lsn)

    def work_elsewhere(self) -> None:
        """Log records of other tables, and of transactions that roll back."""
        self.wal_end += self._world.rng.choice((8, 64, 512))

    def add_column(self) -> None:
        """ALTER TABLE accounts ADD COLUMN."""
        relation = self.relations[ACCOUNTS.oid]
        if EXTRA not in relation.columns:
            self._show(lambda place: place[0] == ACCOUNTS.oid)
            self._reshape(replace(relation, columns=(*relation.columns, EXTRA)))
            self.rows[ACCOUNTS.oid] = {key: (*row, None) for key, row in self.rows[ACCOUNTS.oid].items()}
            self.work_elsewhere()

    def get_stuck(self) -> None:
        """A table that can't be followed any more; perhaps it is not even published, or not to be captured."""
        side = self._world.side
        relation = side.choice(list(self.relations.values()))
        code = side.choice(("REPLICA_IDENTITY", "PUBLICATION_LACKS"))
        self.stuck[relation.oid] = Trouble(code, code, "")
        if code == "PUBLICATION_LACKS" and side.random() < 0.4:
            self.captured.discard(relation.oid)
        self._show(lambda place: place[0] == relation.oid)
        self._reshape(replace(relation))  # the log describes it anew

    def get_free(self) -> None:
        """All of them are as they must be, again."""
        for oid in self.stuck:
            self._reshape(replace(self.relations[oid]))
        self.stuck.clear()
        self.captured = set(self.relations)

    def _reshape(self, relation: Relation) -> None:
        self.relations[relation.oid] = relation
        self._shapes[_described(relation)] = relation

    def _rewrite(self, into: Transaction) -> None:
        """ALTER TABLE in a transaction, which then changes a row."""
        relation = self._world.side.choice([each for oid, each in self.relations.items() if oid not in self.stuck])
        self._show(lambda place: place[0] == relation.oid)
        self._reshape(rewritten(relation))
        rows = self.rows[relation.oid]
        self.rows[relation.oid] = {key: rewritten_row(relation, row) for key, row in rows.items()}
        self._insert(into, self.relations[relation.oid])

    def commit(self) -> None:
        """One transaction of random changes."""
        rng = self._world.rng
        # Commit records may touch each other: transactions that wrote side by side and then committed.
        start = self.wal_end + rng.choice((0, 0, 8, 64))
        xid = self.next_xid()
        if rng.random() < 0.2:
            self._open.append(xid)
            xid = self.next_xid()
        if self._open and rng.random() < 0.3:
            xid = self._open.pop(rng.randrange(len(self._open)))
        transaction = Transaction(
            xid, start, start + rng.choice((8, 40)), self._world.wall_us, tuple(self.relations.values())
        )
        before = {oid: dict(rows) for oid, rows in self.rows.items()}
        rewrites = len(self.stuck) < len(self.relations) and self._world.happens("table rewritten")
        if rewrites:
            self._rewrite(transaction)
            transaction.shapes = tuple(self.relations.values())
        size = rng.choice((1, 1, 1, 2, 3, 4, 6, rng.randint(9, 24)))
        for _ in range(size):
            self._change(transaction)
        self.wal_end = transaction.end_lsn + rng.choice((0, 0, 16))
        self.transactions.append(transaction)
        self._commits.append(transaction.commit_lsn)
        now = dict(self.states[-1])
        for oid in transaction.touched:
            now[oid] = {key: values(self.relations[oid], row) for key, row in self.rows[oid].items()}
        self.states.append(now)
        ops = {record.op for due in transaction.changes for _, _, record in due}
        if rng.random() < 0.5 and not rewrites and "t" not in ops:
            self._world.saw("committed, not visible yet")
            self._hidden[xid] = _overwritten(before, self.rows)
        self._world.note(
            "source commits",
            xid,
            xid in self._hidden,
            transaction.commit_lsn,
            transaction.end_lsn,
            len(transaction.changes),
        )

    def next_xid(self) -> int:
        """A transaction begins."""
        self._xid += 100  # those between are its subtransactions'
        return self._xid

    def visible(self) -> tuple[Visibility, dict[int, dict[str, Texts]]]:
        """What a snapshot sees now: a commit is in the log before anybody sees it."""
        rows = {oid: dict(of_table) for oid, of_table in self.rows.items()}
        for places in self._hidden.values():
            for (oid, key), before in places.items():
                if before is None:
                    rows[oid].pop(key, None)
                else:
                    rows[oid][key] = before
        running = frozenset([*self._open, *self._hidden])
        return Visibility(min(running, default=self._xid + 1), self._xid + 1, running), rows

    def end_transactions(self) -> None:
        """What has committed becomes visible, and what is open rolls back; some of it, or all when healed."""
        everything = self._world.healed
        for xid in [xid for xid in self._hidden if everything or self._world.chance(0.5)]:
            del self._hidden[xid]
        self._open = [xid for xid in self._open if not everything and self._world.chance(0.5)]

    def _show(self, touched: Callable[[tuple[int, str]], bool]) -> None:
        """Whoever touches what a hidden transaction has locked waits until that one is visible."""
        self._hidden = {
            xid: places for xid, places in self._hidden.items() if not any(touched(place) for place in places)
        }

    def create_slot(self) -> int:
        """A slot at the log's end: its consistent point."""
        if self.slot is not None:
            raise TransientError("the slot exists")
        self.slot = Slot(self.wal_end, self.wal_end)
        return self.wal_end

    def drop_slot(self) -> None:
        """Drop it, whether or not it is there."""
        self.cut()
        self.slot = None

    def confirm(self, lsn: int) -> None:
        """A status update has arrived."""
        assert self.slot is not None
        require(lsn <= self.durable_lsn, "confirmed past what Kafka has committed", lsn, self.durable_lsn)
        self.slot.confirmed = max(self.slot.confirmed, lsn)
        if self._world.chance(0.3):
            self.slot.saved = self.slot.confirmed

    def cut(self) -> None:
        """End the replication connection, if there is one."""
        if self.slot is not None and self.slot.reader is not None:
            self.slot.reader.cut()

    def restart(self) -> None:
        """A crash of Postgres: connections end, and the slot is as it was last written down."""
        self.cut()
        self._open, self._hidden = [], {}
        if self.slot is not None:
            self.slot.confirmed = self.slot.saved

    def resolve(self, message: RelationMessage) -> Relation:
        """What the catalogue makes of a relation message."""
        relation = self._shapes[message.oid, tuple((column.name, column.type_mod) for column in message.columns)]
        trouble = self.stuck.get(relation.oid)
        return relation if trouble is None or is_unpublished(trouble) else replace(relation, trouble=trouble)

    def complete(self, change: Change) -> Change:
        """Unchanged values from the old row, which REPLICA IDENTITY FULL has in the log."""
        assert change.new is not None
        assert change.old is not None
        new = tuple(old if now is UNCHANGED else now for now, old in zip(change.new, change.old, strict=True))
        return Change(change.op, change.relation, change.old, new, change.old_is_key)

    def _change(self, into: Transaction) -> None:
        rng = self._world.rng
        relation = self.relations[rng.choice((ACCOUNTS, ACCOUNTS, LINES, TAGS)).oid]
        if not self._may_change(relation.oid):
            return
        rows = self.rows[relation.oid]
        if rng.random() < 0.03:
            self._truncate(into)
        elif not rows or (len(rows) < 6 and rng.random() < 0.45):
            self._insert(into, relation)
        else:
            self._alter(into, relation, rng.choice(list(rows)))

    def _may_change(self, oid: int) -> bool:
        """What is not published is not to change before the topics say so: nobody could notice that."""
        trouble = self.stuck.get(oid)
        return trouble is None or not is_unpublished(trouble) or self.is_left_out(oid)

    def _is_logged(self, oid: int) -> bool:
        trouble = self.stuck.get(oid)
        return trouble is None or not is_unpublished(trouble)

    def _log(self, into: Transaction, relations: list[Relation], payload: bytes) -> None:
        into.touched |= {relation.oid for relation in relations}
        if all(self._is_logged(relation.oid) for relation in relations):
            into.messages.append((relations, payload))

    def _insert(self, into: Transaction, relation: Relation) -> None:
        row = self._fresh(relation)
        key = key_text(relation, row)
        if key in self.rows[relation.oid]:
            return self._alter(into, relation, key)
        self._show(lambda place: place == (relation.oid, key))
        self.rows[relation.oid][key] = row
        self._log(into, [relation], frames.insert(relation.oid, row))
        return self._due(into, relation, ((key, "c", row),))

    def _alter(self, into: Transaction, relation: Relation, key: str) -> None:
        rng, rows = self._world.rng, self.rows[relation.oid]
        before = rows[key]
        self._show(lambda place: place == (relation.oid, key))
        if rng.random() < 0.3:
            del rows[key]
            old = before if relation.identity == "f" else _key_only(relation, before)
            self._log(into, [relation], frames.delete(relation.oid, old, old_is_key=relation.identity != "f"))
            return self._due(into, relation, ((key, "d", None),))
        now = self._fresh(relation, None if rng.random() < 0.25 else before)
        moved = key_text(relation, now)
        if moved != key and moved in rows:
            now, moved = before, key
        self._show(lambda place: place == (relation.oid, moved))
        return self._update(into, relation, key, before, moved, now)

    def _update(  # what happens to one row
        self, into: Transaction, relation: Relation, key: str, before: Texts, moved: str, now: Texts
    ) -> None:
        rows = self.rows[relation.oid]
        del rows[key]
        rows[moved] = now
        full = relation.identity == "f"
        old = before if full else _key_only(relation, before) if moved != key else None
        sent = tuple(
            UNCHANGED if column.name == "body" and text == was and text else text
            for column, text, was in zip(relation.columns, now, before, strict=True)
        )
        self._log(into, [relation], frames.update(relation.oid, sent, old, old_is_key=not full))
        if moved == key:
            return self._due(into, relation, ((key, "u", now),))
        return self._due(into, relation, ((key, "d", None), (moved, "c", now)))

    def _truncate(self, into: Transaction) -> None:
        rng = self._world.rng
        chosen = [self.relations[oid] for oid in rng.sample(sorted(self.relations), rng.choice((1, 1, 2)))]
        if not all(self._is_logged(relation.oid) for relation in chosen):
            return
        self._log(into, chosen, frames.truncate([relation.oid for relation in chosen]))
        oids = {relation.oid for relation in chosen}
        self._show(lambda place: place[0] in oids)
        for relation in chosen:
            self.rows[relation.oid] = {}
            event = Seen("{}", "t", None, into.commit_lsn, 2 * len(into.changes) + 1)
            into.changes.append([(TOPICS[relation.oid], number, event) for number in range(PARTITIONS)])

    def _due(self, into: Transaction, relation: Relation, events: tuple[tuple[str, str, Texts | None], ...]) -> None:
        if not self._is_logged(relation.oid):
            return
        topic, due = TOPICS[relation.oid], []
        for ordinal, (key, op, row) in enumerate(events, 2 * len(into.changes) + 1):
            after = values(relation, row) if row is not None else None
            due.append((topic, partition(key), Seen(key, op, after, into.commit_lsn, ordinal)))
            if op == "d":
                due.append((topic, partition(key), Seen(key, None, None, into.commit_lsn, ordinal)))
        into.changes.append(due)

    def _fresh(self, relation: Relation, kept: Texts | None = None) -> Texts:
        """A random row; with `kept` one of the same key, with some other values the same."""
        rng = self._world.rng
        row: list[str | None] = []
        for number, column in enumerate(relation.columns):
            if kept is not None and (column.is_key or rng.random() < 0.5):
                row.append(kept[number])
            elif column.type_oid == INT4:
                row.append(str(rng.randint(1, 7)))
            else:
                row.append(rng.choice(WORDS) if column.is_key or rng.random() < 0.85 else None)
        return tuple(row)


def is_unpublished(trouble: Trouble) -> bool:
    """Whether the log has nothing of the table."""
    return trouble.code == "PUBLICATION_LACKS"


def _described(relation: Relation) -> tuple[int, tuple[tuple[str, int], ...]]:
    """What the log says of a shape."""
    return relation.oid, tuple((column.name, column.type_mod) for column in relation.columns)


def _key_only(relation: Relation, row: Texts) -> Texts:
    return tuple(text if column.is_key else None for column, text in zip(relation.columns, row, strict=True))


def _overwritten(
    before: dict[int, dict[str, Texts]], after: dict[int, dict[str, Texts]]
) -> dict[tuple[int, str], Texts | None]:
    """What was where one transaction changed something; None where nothing was."""
    return {
        (oid, key): before[oid].get(key)
        for oid in after
        for key in before[oid].keys() | after[oid].keys()
        if before[oid].get(key) != after[oid].get(key)
    }
