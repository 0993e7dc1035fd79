"""The oracle of the topics: looks at every Kafka transaction at the moment in which its commit is decided.

In: the transaction and the source's log. Out: a Violation, or the newest progress. Keeps true: committed data is a
prefix of the source's log in whole transactions, each change once and in order, and each progress record is true.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from cdc.progress import PROGRESS_KEY, Kind, Progress, checksum
from cdc.schema_record import SchemaRecord
from jobs.batch import Target, plan
from tests.simulation.broker import PROGRESS, SCHEMA, Broker, Entry, KafkaTransaction, Place
from tests.simulation.gaps import Gaps
from tests.simulation.source import SYSTEM_ID, Source
from tests.simulation.tables import OIDS, PARTITIONS, TOPICS, WIDEST, Seen, Values, partition
from tests.simulation.views import Range, read_changes
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
        self._shapes: dict[str, SchemaRecord] = {}
        self._content: dict[Place, dict[str, Values | None]] = {}
        self.gaps = Gaps()
        source.is_left_out = self._is_left_out

    def _is_left_out(self, oid: int) -> bool:
        stop = self.newest.stopped.get(TOPICS[oid]) if self.newest is not None else None
        return stop is not None and stop.is_open and not stop.is_read

    def committed(self, transaction: KafkaTransaction) -> None:
        """Check one transaction, and take it in."""
        progress = _progress_of(transaction)
        data = [entry for entry in transaction.entries if entry[0][0] in OIDS]
        self._announced(transaction)
        self._check_chain(progress)
        self._check_sums(progress, [entry for _, _, entry in data])
        self._check_ends(progress, data)
        if progress.prev_lsn == 0:
            self.gaps = Gaps()
        self.gaps.take(progress, self.boundaries[-1].lsn if self.boundaries else 0)
        found: Lists = {}
        for place, _, entry in data:
            found.setdefault(place, []).append(entry.seen)
        if progress.kind is Kind.SNAPSHOT and not progress.backfills:
            self._snapshot(progress, found)
        else:
            self._stream(progress, found)
        self._check_shapes(progress, data)
        self._fold(progress, data)
        self._world.saw("published", progress.kind.value)
        self._world.note("committed", progress.kind.value, progress.seq, progress.lsn, progress.part, progress.stopped)
        self.newest = progress
        self._source.durable_lsn = max(self._source.durable_lsn, progress.lsn)
        if progress.is_boundary:
            self._check_content(progress)
            self._check_told(progress)
            self.boundaries.append(progress)

    def check_whole(self) -> None:
        """The topics, read from their beginning, give the source as it was at the newest boundary."""
        boundary = self.boundaries[-1]
        require(self.newest is boundary and self._done == 0, "the topics end inside a transaction")
        require(not any(stop.is_open for stop in boundary.stopped.values()), "a table stays out", boundary.stopped)
        state = self._source.state_at(boundary.lsn)
        for topic, oid in OIDS.items():
            rows: dict[str, object] = {}
            for number, log in enumerate(self._broker.topics[topic]):
                rows |= _folded(entry.seen for _, entry in log.committed(0, boundary.ends[topic][number]))
            require(rows == state[oid], "a topic's rows are not the source's", topic)
            self._check_replaced(topic, boundary)

    def _check_replaced(self, topic: str, boundary: Progress) -> None:
        """What apply makes of the topic when a view is filled from offset zero."""
        target = Target("mirror", "delta", topic)
        for task in plan({target: None}, boundary, boundary.lsn):
            wanted = Range(task.start, task.end, task.floor_lsn, task.position.lsn)
            read = read_changes(self._broker, target, (0,), wanted)
            rows = {key: row for key, (_, row) in read.upserts.items()}
            due = self._source.state_at(boundary.lsn)[OIDS[topic]]
            require(rows == due, "what fills a view is not the table", topic, boundary.lsn, rows, due)

    def _fold(self, progress: Progress, data: list[tuple[Place, int, Entry]]) -> None:
        if progress.prev_lsn == 0:
            self._content = {}
        for place, _, entry in data:
            _fold_one(self._content.setdefault(place, {}), entry.seen)

    def _check_content(self, boundary: Progress) -> None:
        """At a boundary the topics hold every table as it was there, be it from the log or from chunks."""
        state = self._source.state_at(boundary.lsn)
        for topic, oid in OIDS.items():
            if topic not in boundary.ends or self.gaps.hold(topic, boundary.lsn):
                continue
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
        due = {topic: list(previous.get(topic, ends)) for topic, ends in progress.ends.items()}
        for (topic, number), offset, _ in data:
            due[topic][number] = max(due[topic][number], offset + 1)
        said = {topic: list(ends) for topic, ends in progress.ends.items()}
        require(said == due, "ends are wrong", said, due)

    def _snapshot(self, progress: Progress, found: Lists) -> None:
        if progress.prev_lsn == 0:
            self._next, self._done = self._source.first_from(progress.lsn), 0
            self._unread = {}
            for topic in progress.ends:
                oid = OIDS[topic]
                for key, row in self._source.state_at(progress.lsn)[oid].items():
                    due = self._unread.setdefault((topic, partition(key)), [])
                    due.append(Seen(key, "r", row, progress.lsn - 1, 0))
        assert self._unread is not None
        for place, records in found.items():
            for record in records:
                require(record in self._unread.get(place, ()), "a snapshot row that is not due", place, record)
                self._unread[place].remove(record)

    def _stream(self, progress: Progress, found: Lists) -> None:
        if self._unread is not None:
            left = {backfill.topic for backfill in progress.backfills} | progress.stopped.keys()
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
        found, due = self._reached(progress, found), self._reached(progress, due)
        require(found == due, "the committed records are not those that are due", found, due)

    def _reached(self, progress: Progress, records: Lists) -> Lists:
        """Without what a table's topic lacks, or has in vain: what comes before `since`, or before it stops again."""
        kept: Lists = {}
        for (topic, number), some in records.items():
            stop = progress.stopped.get(topic)
            some = [
                record
                for record in some
                if stop is None or not (stop.leaves_out(record.lsn) or record.lsn < stop.whole)
            ]
            if some:
                kept[topic, number] = some
        return kept

    def _without_chunks(self, progress: Progress, place: Place, records: list[Seen]) -> list[Seen]:
        """Rows of chunks hold at their position, which no view has passed and which is behind all before them."""
        stands_at = self.boundaries[-1].lsn if self.boundaries else 0
        topic = place[0]
        positions = [(record.lsn, record.ordinal) for record in records]
        require(positions == sorted(positions), "records of one partition are out of order", place, records)
        for record in records:
            if record.op == "r":
                self._world.saw("row of a chunk published")
                is_copy = topic in progress.stopped and record.lsn >= progress.lsn
                is_between = stands_at <= record.lsn < progress.lsn
                require(is_copy or is_between, "a chunk's row where views may have passed", record)
                now = self._source.state_at(record.lsn + 1)[OIDS[topic]].get(record.key)
                require(record.after == now, "a chunk's row is not what its key holds there", place, record, now)
        return [record for record in records if record.ordinal]

    def _announced(self, transaction: KafkaTransaction) -> None:
        for (topic, _), _, entry in transaction.entries:
            if topic == SCHEMA:
                name = json.loads(entry.record.key)["table"]
                if entry.record.value is None:
                    del self._shapes[name]
                else:
                    self._shapes[name] = SchemaRecord.from_value(entry.record.value)

    def _check_shapes(self, progress: Progress, data: list[tuple[Place, int, Entry]]) -> None:
        for (topic, _), _, entry in data:
            stop = progress.stopped.get(topic)
            if stop is None or not stop.is_open:
                self._check_shape(topic, entry.seen.after)

    def _check_shape(self, topic: str, after: Values | None) -> None:
        shape = self._shapes[WIDEST[OIDS[topic]].name].relation
        wider = WIDEST[shape.oid].columns[len(shape.columns) :]
        require(after is None or not any(after[len(shape.columns) :]), "a row came before its schema", topic, wider)

    def _check_told(self, boundary: Progress) -> None:
        """A table's schema record says that it has stopped, and only then; and is of the shape of its rows."""
        for record in self._shapes.values():
            stop = boundary.stopped.get(record.topic)
            if stop is None or not stop.is_open:
                require(record.stopped is None, "a schema record says that a table has stopped", record, stop)
            elif stop.lsn <= boundary.lsn:
                require(record.stopped is not None, "a schema record does not say why a table has stopped", record)
            if not self.gaps.hold(record.topic, boundary.lsn):
                for (topic, _), rows in self._content.items():
                    for row in rows.values() if topic == record.topic else ():
                        self._check_shape(topic, row)


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


def _folded(records: Iterable[Seen]) -> dict[str, Values | None]:
    rows: dict[str, Values | None] = {}
    for record in records:
        _fold_one(rows, record)
    return rows


def _fold_one(rows: dict[str, Values | None], record: Seen) -> None:
    if record.op == "t":
        rows.clear()
    elif record.op in (None, "d"):
        rows.pop(record.key, None)
    else:
        rows[record.key] = record.after
