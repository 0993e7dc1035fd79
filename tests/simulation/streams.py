"""Large transactions as a walsender sends them before they commit: in pieces, with savepoints rolled back on the way.

In: committed transactions of the source's log. Out: payloads. Keeps true what pgoutput keeps: a subtransaction's xid is
above its parent's, tables are described once in each transaction and again after every abort.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from cdc.changes import Relation
from tests.simulation.source import Source, Transaction
from tests.simulation.tables import INT4, WIDER_ACCOUNTS
from tests.simulation.world import World
from tests.support import frames

FIRST_JUNK_XID: Final = 2_000_000_000

Step = tuple[int, tuple[list[Relation], bytes] | None]
"""A subtransaction's message, or None: it is rolled back."""


@dataclass(slots=True)
class Stream:
    """One transaction on its way."""

    xid: int
    steps: deque[Step]
    is_first: bool = True
    described: dict[int, Relation] = field(default_factory=dict)


class Streams:
    """What one walsender has begun to send in pieces."""

    def __init__(self, world: World, source: Source) -> None:
        self._world = world
        self._source = source
        self._open: dict[int, Stream] = {}
        self._junk: list[int] = []
        self._junk_xid = FIRST_JUNK_XID

    def piece(self, transaction: Transaction) -> list[bytes]:
        """One more piece of a transaction that commits later."""
        stream = self._open.get(transaction.xid)
        if stream is None:
            stream = self._open[transaction.xid] = Stream(transaction.xid, deque(self._planned(transaction)))
        return self._advance(stream)

    def is_open(self, transaction: Transaction) -> bool:
        """Whether a piece of it has been sent."""
        return transaction.xid in self._open

    def finish(self, transaction: Transaction) -> tuple[list[bytes], dict[int, Relation]]:
        """The rest of it and its commit; what it has said of tables, which holds from then on."""
        payloads = self.piece(transaction)
        stream = self._open.pop(transaction.xid)
        while stream.steps:
            payloads += self._advance(stream)
        self._world.saw("streamed", "and committed")
        commit = frames.stream_commit(stream.xid, transaction.commit_lsn, transaction.end_lsn, transaction.ts_us)
        return [*payloads, commit], stream.described

    def work_in_vain(self) -> list[bytes]:
        """A piece or the end of a transaction that is rolled back."""
        rng = self._world.rng
        if not self._junk or rng.random() < 0.4:
            self._junk_xid += 100
            self._junk.append(self._junk_xid)
            self._open[self._junk_xid] = Stream(self._junk_xid, deque())
        xid = rng.choice(self._junk)
        stream = self._open[xid]
        stream.steps.extend(self._junk_rows(xid + rng.choice((0, 1))))
        payloads = self._advance(stream)
        if rng.random() < 0.5:
            self._junk.remove(xid)
            del self._open[xid]
            payloads.append(frames.stream_abort(xid, xid))
            self._world.saw("streamed", "and rolled back")
        return payloads

    def _planned(self, transaction: Transaction) -> list[Step]:
        """Its messages by subtransactions that stay, others between that do not."""
        rng, steps = self._world.rng, list[Step]()
        writer = newest = transaction.xid
        for message in transaction.messages:
            if rng.random() < 0.25:
                steps += self._rolled_back(newest)
                newest += 2
            drawn = rng.random()
            if drawn < 0.3:
                writer = newest = newest + 1
            elif drawn < 0.5:
                writer = transaction.xid
            steps.append((writer, message))
        if rng.random() < 0.25:
            steps += self._rolled_back(newest)
        return steps

    def _rolled_back(self, newest: int) -> list[Step]:
        """A savepoint, perhaps with another one in it that was released."""
        rng = self._world.rng
        outer, inner = newest + 1, newest + 2
        steps = self._junk_rows(outer) if rng.random() < 0.7 else []
        if rng.random() < 0.5:
            steps += self._junk_rows(inner)
            if rng.random() < 0.5:
                steps += self._junk_rows(outer)
            steps.append((inner, None))
        return [*steps, (outer, None)]

    def _junk_rows(self, writer: int) -> list[Step]:
        rng = self._world.rng
        # Its shape may be one that never came to be.
        relations = [*self._source.relations.values(), WIDER_ACCOUNTS]
        chosen = [rng.choice(relations) for _ in range(rng.randint(1, 3))]
        return [(writer, ([relation], frames.insert(relation.oid, _junk_row(relation)))) for relation in chosen]

    def _advance(self, stream: Stream) -> list[bytes]:
        """A piece of some steps; aborts come between pieces."""
        payloads: list[bytes] = [frames.stream_start(stream.xid, is_first=stream.is_first)]
        stream.is_first = False
        steps = stream.steps
        for _ in range(self._world.rng.randint(0, 6)):
            if not steps or steps[0][1] is None:
                break
            payloads += self._sent(stream, *steps.popleft())
        payloads.append(frames.stream_stop())
        while steps and steps[0][1] is None:
            payloads.append(frames.stream_abort(stream.xid, steps.popleft()[0]))
            stream.described.clear()
            self._world.saw("savepoint", "rolled back")
        return payloads

    def _sent(self, stream: Stream, writer: int, message: tuple[list[Relation], bytes] | None) -> list[bytes]:
        assert message is not None
        payloads = []
        for relation in message[0]:
            if stream.described.get(relation.oid) != relation:
                stream.described[relation.oid] = relation
                payloads.append(frames.relation(frames.relation_message(relation)))
        return [frames.in_piece(writer, payload) for payload in (*payloads, message[1])]


def _junk_row(relation: Relation) -> list[str]:
    return ["99" if column.type_oid == INT4 else "rolled back" for column in relation.columns]
