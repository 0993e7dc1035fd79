"""The oracle of the topics: looks at every Kafka transaction at the moment in which its commit is decided.

In: the transaction and the source's log. Out: a Violation, or the newest progress. Keeps true: committed data is a
prefix of the source's log in whole transactions, each change once and in order, and each progress record is true.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdc.progress import PROGRESS_KEY, Kind, Progress, checksum
from cdc.schema_record import SchemaRecord
from tests.simulation.broker import PROGRESS, SCHEMA, Broker, Entry, KafkaTransaction, Place
from tests.simulation.source import SYSTEM_ID, Source
from tests.simulation.tables import OIDS, PARTITIONS, TOPICS, WIDEST, Seen, partition
from tests.simulation.world import World, require

Lists = dict[Place, list[Seen]]


class Published:
    """What the topics hold, by the transactions that were committed."""

    def __init__(self, world: World, source: Source, broker: Broker) -> None:
        self._world = world
        self._source = source
        self._broker = broker
        broker.on_commit = self.committed
        self.newest: Progress | None = None
        self.boundaries: list[Progress] = []
        self._next = 0
        self._done = 0
        self._unread: Lists | None = None
        self._shapes: dict[int, SchemaRecord] = {}
        self._content: dict[Place, dict[str, object]] = {}

    def committed(self, transaction: KafkaTransaction) -> None:
        """Check one transaction, and take it in."""
        progress = _progress_of(transaction)
        data = [entry for entry in transaction.entries if entry[0][0] in OIDS]
        self._announced(transaction)
        self._check_chain(progress)
        self._check_sums(progress, [entry for _, _, entry in data])
        self._check_ends(progress, data)
        found: Lists = {}
        for place, _, entry in data:
            found.setdefault(place, []).append(entry.seen)
        if progress.kind is Kind.SNAPSHOT and not progress.backfills:
            self._snapshot(progress, found)
        else:
            self._stream(progress, found)
        self._check_shapes(data)
        self._fold(progress, data)
        self._world.saw("published", progress.kind.value)
        self._world.note("committed", progress.kind.value, progress.seq, progress.lsn, progress.part)
        self.newest = progress
        self._source.durable_lsn = max(self._source.durable_lsn, progress.lsn)
        if progress.is_boundary:
            self._check_content(progress)
            self.boundaries.append(progress)

    def check_whole(self) -> None:
        """The topics, read from their beginning, give the source as it was at the newest boundary."""
        boundary = self.boundaries[-1]
        require(self.newest is boundary and self._done == 0, "the topics end inside a transaction")
        state = self._source.state_at(boundary.lsn)
        for topic, oid in OIDS.items():
            rows: dict[str, object] = {}
            for number, log in enumerate(self._broker.topics[topic]):
                rows |= _folded(entry.seen for _, entry in log.committed(0, boundary.ends[topic][number]))
            require(rows == state[oid], "a topic's rows are not the source's", topic)

    def _fold(self, progress: Progress, data: list[tuple[Place, int, Entry]]) -> None:
        if progress.prev_lsn == 0:
            self._content = {}
        for place, _, entry in data:
            _fold_one(self._content.setdefault(place, {}), entry.seen)

    def _check_content(self, boundary: Progress) -> None:
        """At a boundary the topics hold every table as it was there, be it from the log or from chunks."""
        state = self._source.state_at(boundary.lsn)
        for topic, oid in OIDS.items():
            rows: dict[str, object] = {}
            for number in range(PARTITIONS):
                rows |= self._content.get((topic, number), {})
            require(rows == state[oid], "at a boundary a topic's rows are not the table's", topic, boundary.lsn)

    def _check_chain(self, progress: Progress) -> None:
        previous = self.newest
        require(progress.system_id == SYSTEM_ID, "another cluster's progress")
        if progress.kind is Kind.SNAPSHOT and progress.prev_lsn == 0:
            again = previous is not None and previous.kind is Kind.SNAPSHOT and not previous.backfills
            require(previous is None or again, "a snapshot began over complete topics, or over ones being completed")
            require(progress.seq == (previous.seq if previous else 0) + 1, "the count was broken by a snapshot")
            require(progress.origin_lsn == progress.lsn, "a chain that does not name its snapshot")
            require(not any(any(ends) for ends in progress.ends.values()), "a snapshot began in filled topics")
        else:
            require(previous is not None and progress.follows(previous), "the chain is broken", progress, previous)

    def _check_sums(self, progress: Progress, data: list[Entry]) -> None:
        require(progress.records == len(data), "a progress record counts wrongly", progress.records, len(data))
        require(progress.checksum == checksum(entry.record for entry in data), "a checksum is wrong")

    def _check_ends(self, progress: Progress, data: list[tuple[Place, int, Entry]]) -> None:
        previous = self.newest.ends if self.newest and progress.prev_lsn else {}
        due = {topic: list(previous.get(topic, (0,) * len(self._broker.topics[topic]))) for topic in TOPICS.values()}
        for (topic, number), offset, _ in data:
            due[topic][number] = max(due[topic][number], offset + 1)
        said = {topic: list(ends) for topic, ends in progress.ends.items()}
        require(said == due, "ends are wrong", said, due)

    def _snapshot(self, progress: Progress, found: Lists) -> None:
        if progress.prev_lsn == 0:
            self._next, self._done = self._source.first_from(progress.lsn), 0
            self._unread = {}
            for topic, oid in OIDS.items():
                for key, row in self._source.state_at(progress.lsn)[oid].items():
                    self._unread.setdefault((topic, partition(key)), []).append(Seen(key, "r", row, progress.lsn, 0))
        assert self._unread is not None
        for place, records in found.items():
            for record in records:
                require(record in self._unread.get(place, ()), "a snapshot row that is not due", place, record)
                self._unread[place].remove(record)

    def _stream(self, progress: Progress, found: Lists) -> None:
        if self._unread is not None:
            left = {backfill.topic for backfill in progress.backfills}
            unread = [place for place, rows in self._unread.items() if rows and place[0] not in left]
            require(not unread, "a snapshot ended before all rows were read", unread)
            self._unread = None
        found = {place: self._without_chunks(progress, place, records) for place, records in found.items()}
        found = {place: records for place, records in found.items() if records}
        transactions = self._source.transactions
        due: Lists = {}
        while self._next < len(transactions) and transactions[self._next].commit_lsn < progress.lsn:
            _add(due, transactions[self._next].changes[self._done :])
            self._next, self._done = self._next + 1, 0
        if progress.part is not None:
            require(self._next < len(transactions), "a part of no transaction")
            transaction = transactions[self._next]
            require(progress.kind is Kind.PART, "only a part may end inside a transaction")
            require(progress.part.commit_lsn == transaction.commit_lsn, "a part of another transaction")
            _add(due, transaction.changes[self._done : progress.part.changes])
            self._done = progress.part.changes
        require(self._done == 0 or not progress.is_boundary, "a boundary inside a transaction", progress)
        require(found == due, "the committed records are not those that are due", found, due)

    def _without_chunks(self, progress: Progress, place: Place, records: list[Seen]) -> list[Seen]:
        """Rows of chunks hold at their position, which no view has passed and which is behind all before them."""
        stands_at = self.boundaries[-1].lsn if self.boundaries else 0
        topic = place[0]
        positions = [(record.lsn, record.ordinal) for record in records]
        require(positions == sorted(positions), "records of one partition are out of order", place, records)
        for record in records:
            if record.op == "r":
                self._world.saw("row of a chunk published")
                require(stands_at <= record.lsn < progress.lsn, "a chunk's row where views may have passed", record)
                now = self._source.state_at(record.lsn)[OIDS[topic]].get(record.key)
                require(record.after == now, "a chunk's row is not what its key holds there", place, record, now)
        return [record for record in records if record.op != "r"]

    def _announced(self, transaction: KafkaTransaction) -> None:
        for (topic, _), _, entry in transaction.entries:
            if topic == SCHEMA:
                assert entry.record.value is not None
                record = SchemaRecord.from_value(entry.record.value)
                self._shapes[record.relation.oid] = record

    def _check_shapes(self, data: list[tuple[Place, int, Entry]]) -> None:
        for (topic, _), _, entry in data:
            after = entry.seen.after
            shape = self._shapes[OIDS[topic]].relation
            wider = WIDEST[shape.oid].columns[len(shape.columns) :]
            require(after is None or not any(after[len(shape.columns) :]), "a row came before its schema", topic, wider)


def _progress_of(transaction: KafkaTransaction) -> Progress:
    values = [entry.record for (topic, _), _, entry in transaction.entries if topic == PROGRESS]
    require(len(values) == 1, "a Kafka transaction without one progress record", len(values))
    require(values[0].key == PROGRESS_KEY and values[0].value is not None, "a progress record without its key")
    assert values[0].value is not None
    return Progress.from_bytes(values[0].value)


def _add(due: Lists, changes: list[list[tuple[str, int, Seen]]]) -> None:
    for change in changes:
        for topic, number, record in change:
            due.setdefault((topic, number), []).append(record)


def _folded(records: Iterable[Seen]) -> dict[str, object]:
    rows: dict[str, object] = {}
    for record in records:
        _fold_one(rows, record)
    return rows


def _fold_one(rows: dict[str, object], record: Seen) -> None:
    if record.op == "t":
        rows.clear()
    elif record.op in (None, "d"):
        rows.pop(record.key, None)
    else:
        rows[record.key] = record.after
