"""A model of one walsender: real frames of real pgoutput messages, in chunks of any size.

In: the source's log and the position that the client asked for. Out: frames. Keeps true what Postgres keeps: commit
order, relation messages before their rows, keepalives outside a transaction that never pass an unsent commit; large
transactions come in pieces before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from cdc.changes import Relation
from cdc.errors import OperatorError, TransientError
from tests.simulation.source import Source, Transaction
from tests.simulation.streams import Streams
from tests.simulation.world import World, require
from tests.support import frames

OUTSIDE: Final = (b"C", b"E", b"A", b"c")
"""The kinds of message behind which no transaction and no piece of one is open."""


class Walsender:
    """One replication connection, as the client holds it."""

    def __init__(self, world: World, source: Source, lsn: int) -> None:
        slot = source.slot
        assert slot is not None
        if slot.reader is not None and slot.reader.alive:
            # A reader that went silent is cut after wal_sender_timeout; until then the slot is taken.
            if not world.healed and world.chance(0.5):
                raise OperatorError("the slot is being read by another process", code="SLOT_IN_USE")
            slot.reader.cut()
        self._world = world
        self._source = source
        self._slot = slot
        self.alive: bool = True
        self.confirmed = lsn
        slot.reader = self
        # Postgres honours the position asked for; a proxy or server that only knows the slot's may begin earlier.
        start = slot.confirmed if world.happens("stream starts early") else max(slot.confirmed, lsn)
        self._next = source.first_from(start)
        self._sent = slot.confirmed
        self._described: dict[int, Relation] = {}
        self._streams = Streams(world, source)
        self._pending: deque[bytes] = deque()

    def read(self) -> tuple[list[bytes], bool]:
        """Some of what has been sent, and whether that was all."""
        world = self._world
        if not self.alive or world.happens("replication connection cut"):
            self.cut()
            raise TransientError("the connection to Postgres was lost")
        if world.happens("status update repeated"):
            self._source.confirm(self.confirmed)
        self._send()
        count = world.rng.randint(0, len(self._pending)) if not world.healed else len(self._pending)
        taken = [self._pending.popleft() for _ in range(count)]
        return taken, not self._pending or world.chance(0.2)

    def confirm(self, lsn: int, *, ask_reply: bool) -> None:
        """A status update from the client."""
        require(lsn <= self._source.durable_lsn, "confirmed past what Kafka has committed", lsn)
        if not self.alive:
            raise TransientError("the connection to Postgres was lost")
        self.confirmed = max(self.confirmed, lsn)
        if not self._world.happens("status update lost"):
            self._source.confirm(self.confirmed)
        if ask_reply:
            self._keepalive()

    def cut(self) -> None:
        """End the connection from the server's side."""
        self.alive = False
        if self._slot.reader is self:
            self._slot.reader = None

    def _send(self) -> None:
        rng = self._world.rng
        for _ in range(rng.randint(0, 3) if not self._world.healed else 20):
            if self._next < len(self._source.transactions):
                self._stream_ahead()
                transaction = self._source.transactions[self._next]
                self._next += 1
                self._pending.extend(self._framed(self._payloads(transaction), transaction))
                self._sent = max(self._sent, transaction.end_lsn)
            if rng.random() < 0.2:
                self._keepalive()

    def _stream_ahead(self) -> None:
        """Pieces of transactions that commit later, or never; a table is altered only when nobody else is at it."""
        rng = self._world.rng
        first, *later = self._source.transactions[self._next : self._next + 4]
        ahead = [first, *(transaction for transaction in later if transaction.shapes == first.shapes)]
        while rng.random() < 0.3:
            self._pending.extend(self._framed(self._streams.piece(rng.choice(ahead)), first))
        if rng.random() < 0.1:
            self._pending.extend(self._framed(self._streams.work_in_vain(), first))

    def _keepalive(self) -> None:
        rng = self._world.rng
        waiting = self._next < len(self._source.transactions)
        limit = self._source.transactions[self._next].commit_lsn if waiting else self._source.wal_end
        # Decoding begins before the position that was asked for: positions may be old ones at first.
        if limit > self._sent:
            between = rng.choice((self._sent, limit, rng.randint(self._sent, limit)))
            self._sent = limit if self._world.healed else between
        self._pending.append(frames.keepalive(self._sent, self._world.wall_us, reply_requested=rng.random() < 0.5))

    def _framed(self, payloads: Iterable[bytes], at: Transaction) -> Iterator[bytes]:
        """With keepalives in between: inside a transaction they may name any position, even one past its commit."""
        rng = self._world.rng
        for payload in payloads:
            yield frames.wal_data(payload, at.commit_lsn, at.commit_lsn, at.ts_us)
            if payload[:1] not in OUTSIDE and rng.random() < 0.05:
                position = rng.randint(at.commit_lsn, self._source.wal_end)
                yield frames.keepalive(position, self._world.wall_us, reply_requested=rng.random() < 0.5)

    def _payloads(self, transaction: Transaction) -> Iterable[bytes]:
        if self._streams.is_open(transaction) or self._world.rng.random() < 0.1:
            payloads, described = self._streams.finish(transaction)
            self._described |= described
            return payloads
        return self._whole(transaction)

    def _whole(self, transaction: Transaction) -> Iterator[bytes]:
        yield frames.begin(transaction.commit_lsn, transaction.xid, transaction.ts_us)
        for relations, payload in transaction.messages:
            for relation in relations:
                if self._described.get(relation.oid) is not relation:
                    self._described[relation.oid] = relation
                    yield frames.relation(frames.relation_message(relation))
            yield payload
        yield frames.commit(transaction.commit_lsn, transaction.end_lsn, transaction.ts_us)
