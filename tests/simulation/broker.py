"""A model of Kafka: partitions, transactions of the pipeline's two transactional ids, markers, compaction.

In: requests of producers with their epochs. Out: logs as read_committed and as they are. Keeps true what Kafka keeps:
an older epoch is refused, a transaction is decided once, and its partitions show it one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from cdc.changes import Record
from cdc.errors import OperatorError, TransientError
from cdc.names import progress_topic, schema_topic
from tests.simulation.tables import PARTITIONS, PIPELINE, TOPICS, Seen, seen
from tests.simulation.world import World

PROGRESS: Final = progress_topic(PIPELINE)
SCHEMA: Final = schema_topic(PIPELINE)
COMPACTION_LAG_S: Final = 3600
TOMBSTONE_KEPT_S: Final = 24 * 3600

TURNS: Final = (0, 1)
"""The transactional ids, whose producers take turns."""

Place = tuple[str, int]


@dataclass(slots=True, eq=False)
class KafkaTransaction:
    """What one transaction has written, and how it ended (None: not yet)."""

    turn: int = 0
    committed: bool | None = None
    entries: list[tuple[Place, int, Entry]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Entry:
    """A record in a partition's log."""

    transaction: KafkaTransaction
    record: Record
    at_s: float
    _seen: Seen | None = None

    @property
    def seen(self) -> Seen:
        """What a consumer reads."""
        if self._seen is None:
            record = self.record
            self._seen = seen(record.topic, record.key, record.value, record.position)
        return self._seen


@dataclass(slots=True, eq=False)
class Partition:
    """A log; None is a marker, or a record that compaction took. `undecided` are transactions without marker here."""

    log: list[Entry | None] = field(default_factory=list)
    undecided: dict[KafkaTransaction, int] = field(default_factory=dict)

    @property
    def stable_end(self) -> int:
        """The last stable offset: where a read_committed consumer has to wait."""
        return min(self.undecided.values(), default=len(self.log))

    def committed(self, start: int, end: int) -> Iterator[tuple[int, Entry]]:
        """The records of [start, end) that a read_committed consumer is shown."""
        for offset in range(start, min(end, self.stable_end)):
            entry = self.log[offset]
            if entry is not None and entry.transaction.committed:
                yield offset, entry


class Broker:
    """The whole cluster; `on_commit` is called when a transaction's commit is decided."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.topics: dict[str, list[Partition]] = {PROGRESS: [Partition()], SCHEMA: [Partition()]}
        self.on_commit: Callable[[KafkaTransaction], None] = lambda _: None
        self._epochs = [0 for _ in TURNS]
        self._open: list[KafkaTransaction | None] = [None for _ in TURNS]
        self._unmarked: list[tuple[Partition, KafkaTransaction]] = []
        self.recreate_tables()

    def recreate_tables(self) -> None:
        """Delete the table topics, if they are there, and make them."""
        for topic in TOPICS.values():
            self.topics[topic] = [Partition() for _ in range(PARTITIONS)]

    def ends(self) -> dict[str, tuple[int, ...]]:
        """The table topics' high watermarks."""
        return {topic: tuple(len(partition.log) for partition in self.topics[topic]) for topic in TOPICS.values()}

    def take_over(self, turn: int) -> int:
        """InitProducerId: what is open is aborted, what is decided is marked, older epochs are out."""
        self._abort(turn)
        self._mark_all_of(turn)
        self._epochs[turn] += 1
        return self._epochs[turn]

    def check(self, turn: int, epoch: int) -> None:
        """Refuse a zombie's request."""
        if epoch != self._epochs[turn]:
            raise OperatorError("another capture of this pipeline has taken over", code="FENCED")

    def append(self, epoch: int, transaction: KafkaTransaction, record: Record) -> int:
        """A produce request; it opens the transaction with its first record."""
        turn = transaction.turn
        self.check(turn, epoch)
        if self._open[turn] is None and transaction.committed is None:
            self._mark_all_of(turn)  # the coordinator begins no transaction of an id before its last one is complete
            self._open[turn] = transaction
        if self._open[turn] is not transaction:
            raise OperatorError("the transaction was aborted meanwhile", code="FENCED")
        place = record.topic, record.partition
        partition = self.topics[record.topic][record.partition]
        entry = Entry(transaction, record, self._world.now_s)
        offset = len(partition.log)
        partition.log.append(entry)
        partition.undecided.setdefault(transaction, offset)
        transaction.entries.append((place, offset, entry))
        return offset

    def end_transaction(self, epoch: int, transaction: KafkaTransaction) -> None:
        """EndTxn with commit."""
        self.check(transaction.turn, epoch)
        if self._open[transaction.turn] is not transaction:
            raise OperatorError("the transaction was aborted meanwhile", code="FENCED")
        self._decide(transaction, committed=True)

    def time_out(self) -> None:
        """The coordinator aborts what has been open for too long, and its producer is out."""
        for turn in TURNS:
            if self._abort(turn):
                self._epochs[turn] += 1

    def mark_one(self) -> None:
        """Let one partition learn how a transaction ended."""
        if self._unmarked:
            self._mark(self._world.rng.randrange(len(self._unmarked)))

    def mark_all(self) -> None:
        """Let all of them learn."""
        while self._unmarked:
            self._mark(0)

    def _mark_all_of(self, turn: int) -> None:
        for number in reversed(range(len(self._unmarked))):
            if self._unmarked[number][1].turn == turn:
                self._mark(number)

    def _abort(self, turn: int) -> bool:
        transaction = self._open[turn]
        if transaction is not None:
            self._decide(transaction, committed=False)
        return transaction is not None

    def compact(self, ends: Mapping[str, tuple[int, ...]]) -> None:
        """Drop older records of a key behind which there is a newer one, and old tombstones, beyond the lag.

        Only up to `ends`, those of a boundary: no capture stays away for the lag amid a large transaction.
        """
        for topic, of_topic in ends.items():
            for partition, end in zip(self.topics[topic], of_topic, strict=True):
                self._compact(partition, end)

    def _decide(self, transaction: KafkaTransaction, *, committed: bool) -> None:
        transaction.committed = committed
        self._open[transaction.turn] = None
        self._world.note("kafka decides", "commit" if committed else "abort", len(transaction.entries))
        if committed:
            self.on_commit(transaction)
        places = dict.fromkeys(place for place, _, _ in transaction.entries)
        self._unmarked += [(self.topics[topic][number], transaction) for topic, number in places]
        if not committed or not self._world.happens("commit markers late"):
            self._mark_all_of(transaction.turn)

    def _mark(self, number: int) -> None:
        partition, transaction = self._unmarked.pop(number)
        partition.undecided.pop(transaction, None)
        partition.log.append(None)

    def _compact(self, partition: Partition, end: int) -> None:
        now_s = self._world.now_s
        newest: dict[bytes, int] = {}
        old = [
            (offset, entry) for offset, entry in partition.committed(0, end) if now_s - entry.at_s > COMPACTION_LAG_S
        ]
        for offset, entry in old:
            newest[entry.record.key] = offset
        for offset, entry in old:
            expired = entry.record.value is None and now_s - entry.at_s > TOMBSTONE_KEPT_S
            if newest[entry.record.key] != offset or expired:
                partition.log[offset] = None


class SimulatedPublisher:
    """cdc.publisher.Publisher against the model: client memory, and requests that may fail or come late."""

    def __init__(self, world: World, broker: Broker) -> None:
        self._world = world
        self._broker = broker
        self._epochs = [0 for _ in TURNS]
        self._transaction = KafkaTransaction()
        self._queue: list[Record] = []
        self._landed: dict[Place, int] = {}
        self._counts: dict[Place, int] = {}

    def start(self, turn: int) -> None:
        """Fence every older producer of one id."""
        self._epochs[turn] = self._broker.take_over(turn)

    def produce(self, records: list[Record]) -> None:
        """Data records; some go out now, the rest when it suits the client."""
        if self._world.happens("produce refused"):
            raise TransientError("a produce request failed")
        for record in records:
            place = record.topic, record.partition
            self._counts[place] = self._counts.get(place, 0) + 1
        self._queue += records
        self._land(self._world.rng.randint(0, len(self._queue)))

    def announce(self, key: bytes, value: bytes | None) -> None:
        """A schema record, which is not data."""
        self._queue.append(Record(SCHEMA, 0, key, value))

    def seal(self) -> dict[str, dict[int, int]]:
        """Wait for everything; the offset after the last record of each partition."""
        if self._world.happens("acknowledgements time out"):
            raise TransientError("Kafka did not acknowledge every record")
        self._land(len(self._queue))
        ends: dict[str, dict[int, int]] = {}
        for topic, number in self._counts:
            ends.setdefault(topic, {})[number] = self._landed[topic, number] + 1
        return ends

    def commit(self, progress: Record) -> None:
        """The progress record and EndTxn; after an error nobody knows how it ended."""
        self._queue.append(progress)
        self._land(len(self._queue))
        self._end_transaction()
        self.forget()

    def forget(self) -> None:
        """A new transaction begins with the next record."""
        self._transaction = KafkaTransaction(turn=1 - self._transaction.turn)
        self._queue, self._landed, self._counts = [], {}, {}

    def _end_transaction(self) -> None:
        world, broker, transaction = self._world, self._broker, self._transaction
        epoch = self._epochs[transaction.turn]
        if world.happens("commit request lost"):
            raise TransientError("the commit timed out")
        if world.happens("commit request late"):
            world.late.append(lambda: _arrive(broker, epoch, transaction))
            raise TransientError("the commit timed out")
        broker.end_transaction(epoch, transaction)
        if world.happens("commit reply lost"):
            raise TransientError("the commit timed out")

    def _land(self, count: int) -> None:
        """Records reach the broker in order within a partition, not across partitions."""
        rng = self._world.rng
        batch, self._queue = self._queue[:count], self._queue[count:]
        by_place: dict[Place, list[Record]] = {}
        for record in batch:
            by_place.setdefault((record.topic, record.partition), []).append(record)
        places = list(by_place)
        rng.shuffle(places)
        for place in places:
            for record in by_place[place]:
                epoch = self._epochs[self._transaction.turn]
                self._landed[place] = self._broker.append(epoch, self._transaction, record)


def _arrive(broker: Broker, epoch: int, transaction: KafkaTransaction) -> None:
    with suppress(OperatorError):  # refused: its sender has been replaced
        broker.end_transaction(epoch, transaction)
