"""Row changes to Kafka records: Debezium's envelope around JSON rows.

In: a change (or a snapshot's row), where it comes from, its ordinal. Out: Records, in the order in which they must be
written. Keeps true: a value arrives as Postgres printed it, or it is a RecordError that names table and column.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Final

from cdc import __version__
from cdc.backfill import RowImage
from cdc.changes import Change, Op, Origin, Record, Relation, Row, StreamedRow
from cdc.compiled import Envelope, compiled_table, plain_lines
from cdc.completion import complete, unchanged_columns
from cdc.errors import OperatorError, RecordError
from cdc.names import topic_name
from cdc.partition import partition_of
from cdc.privacy import Treatments
from cdc.rowcode import NO_TREATMENTS, UNFIT, compile_key, compile_row, faulty_column

TRUNCATE_KEY: Final = b"{}"
UNCHANGED_CODE: Final = "UNCHANGED_VALUE"

_NULL: Final = "null"


class TableEncoder:
    """Encodes the changes of one relation as it is now; a new description of the table needs a new encoder."""

    def __init__(
        self,
        pipeline: str,
        database: str,
        relation: Relation,
        partitions: int,
        treatments: Treatments = NO_TREATMENTS,
    ) -> None:
        if not relation.key:
            raise OperatorError(
                f"table {relation.qualified} has no primary key, so its rows have no Kafka key",
                "add a primary key, or exclude the table from the configuration",
                code="NO_KEY",
            )
        self.relation = relation
        self.topic = topic_name(pipeline, relation.schema, relation.name)
        self.partitions = partitions
        self._treatments = treatments
        self._key_json = compile_key(relation, treatments)
        self._row_json = compile_row(relation, treatments)
        self._snapshot = _Source(pipeline, database, relation, "true")
        streamed = _Source(pipeline, database, relation, "false")
        self._tail = streamed.tail
        around = Envelope(self.topic, partitions, streamed.head, streamed.table, self._snapshot.table)
        self.compiled = compiled_table(relation, around, treatments)

    def change_records(self, change: Change, origin: Origin, ordinal: int, ts_ms: int) -> list[Record]:
        """The records of a change, in order. A key change takes two ordinals, `ordinal` and `ordinal + 1`."""
        try:
            return self._records(change, origin, ordinal, ts_ms)
        except UNFIT as error:
            completed = complete(change)
            if completed is change:
                raise self._refusal(change) from error
        return self.change_records(completed, origin, ordinal, ts_ms)

    def read_record(self, row: Row, origin: Origin, ts_ms: int) -> Record:
        """The record of a snapshot's row; its ordinal is 0."""
        try:
            tail = self._snapshot.tail(origin, 0, "r", ts_ms)
            return self._record(self._key_json(row), _NULL, self._row_json(row), tail)
        except UNFIT as error:
            raise self._refusal(Change(Op.READ, self.relation, None, row)) from error

    def vanished_records(self, key: bytes, origin: Origin, ts_ms: int) -> list[Record]:
        """The delete of a key, given as a record has it, that a snapshot of the table no longer shows."""
        event = self._record(key.decode(), key.decode(), _NULL, self._snapshot.tail(origin, 0, "d", ts_ms))
        return [event, self._tombstone(event, origin, 0)]

    def read_image(self, row: Row) -> RowImage:
        """A snapshot's row as far as it can be written before its position is known."""
        try:
            key = self._key_json(row).encode()
            head = f'{{"before":{_NULL},"after":{self._row_json(row)}'.encode()
        except UNFIT as error:
            raise self._refusal(Change(Op.READ, self.relation, None, row)) from error
        return RowImage(key, partition_of(key, self.partitions), head)

    def read_records(self, images: Sequence[RowImage], origin: Origin, ts_ms: int) -> list[Record]:
        """The records of snapshot rows, now that their position is known."""
        tail = self._snapshot.tail(origin, 0, "r", ts_ms).encode()
        return [Record(self.topic, image.partition, image.key, image.head + tail) for image in images]

    def plain_records(self, lines: list[bytes], at: int, origin: Origin, ts_ms: int) -> tuple[list[Record], int]:
        """The records of COPY's `lines[at:]` up to one that has to go through `read_record`, and where that is."""
        return plain_lines(self.compiled, lines, at, origin, ts_ms)

    def _records(self, change: Change, origin: Origin, ordinal: int, ts_ms: int) -> list[Record]:
        old, new = change.old, change.new
        if new is None:
            if old is None:
                return self._truncate(origin, ordinal, ts_ms)
            return self._delete(change, old, origin, ordinal, ts_ms)
        key, before = self._key_json(new), _NULL
        if old is not None:
            if self._key_json(old) != key:
                created = self._record(key, _NULL, self._row_json(new), self._tail(origin, ordinal + 1, "c", ts_ms))
                return [*self._delete(change, old, origin, ordinal, ts_ms), created]
            if not change.old_is_key:
                before = self._row_json(old)
        return [self._record(key, before, self._row_json(new), self._tail(origin, ordinal, change.op.value, ts_ms))]

    def _delete(self, change: Change, old: StreamedRow, origin: Origin, ordinal: int, ts_ms: int) -> list[Record]:
        key = self._key_json(old)
        before = key if change.old_is_key else self._row_json(old)
        event = self._record(key, before, _NULL, self._tail(origin, ordinal, "d", ts_ms))
        return [event, self._tombstone(event, origin, ordinal)]

    def _tombstone(self, event: Record, origin: Origin, ordinal: int) -> Record:
        return Record(self.topic, event.partition, event.key, None, f"{origin.commit_lsn}:{ordinal}")

    def _truncate(self, origin: Origin, ordinal: int, ts_ms: int) -> list[Record]:
        """One event in each partition: it voids what that partition holds."""
        value = _value(_NULL, _NULL, self._tail(origin, ordinal, "t", ts_ms))
        return [Record(self.topic, partition, TRUNCATE_KEY, value) for partition in range(self.partitions)]

    def _record(self, key_json: str, before: str, after: str, tail: str) -> Record:
        key = key_json.encode()
        return Record(self.topic, partition_of(key, self.partitions), key, _value(before, after, tail))

    def _refusal(self, change: Change) -> RecordError:
        """Why a change cannot be encoded; never with a value in it."""
        table = self.relation.qualified
        missing = [name for name in unchanged_columns(change) if self._needs(name)]
        if missing:
            return RecordError(
                f"{table}: the log does not have the unchanged value of column {missing[0]}",
                "read the row from the source, or set REPLICA IDENTITY FULL on the table",
                code=UNCHANGED_CODE,
            )
        for row in (change.new, change.old):
            fault = faulty_column(self.relation, row, self._treatments) if row is not None else None
            if fault is not None:
                return RecordError(f"{table}: column {fault[0]} cannot be encoded: {fault[1]}")
        return RecordError(
            f"{table}: a key column is NULL in the log's row",
            "set REPLICA IDENTITY DEFAULT on the table, so that the log has its primary key",
        )

    def _needs(self, column: str) -> bool:
        treatment = self._treatments.get(column)
        return treatment is None or treatment.needs_value


class _Source:
    """The envelope's `source` object, of which a transaction's changes share all but the ordinal."""

    __slots__ = ("_origin", "_shared", "head", "table")

    def __init__(self, pipeline: str, database: str, relation: Relation, snapshot: str) -> None:
        name, db = encode_basestring(pipeline), encode_basestring(database)
        schema, table = encode_basestring(relation.schema), encode_basestring(relation.name)
        self.head = f',"source":{{"version":"{__version__}","connector":"postgresql","name":{name},"ts_ms":'
        self.table = f',"snapshot":"{snapshot}","db":{db},"schema":{schema},"table":{table},"txId":'
        self._origin: Origin | None = None
        self._shared = ""

    def tail(self, origin: Origin, ordinal: int, op: str, ts_ms: int) -> str:
        """What follows the row images in the envelope."""
        if origin is not self._origin:
            self._origin, self._shared = origin, self._of_transaction(origin)
        return f'{self._shared}{ordinal}}},"op":"{op}","ts_ms":{ts_ms}}}'

    def _of_transaction(self, origin: Origin) -> str:
        xid = _NULL if origin.xid is None else origin.xid
        lsn, commit_ms = origin.commit_lsn, origin.commit_ts_us // 1000
        return f'{self.head}{commit_ms}{self.table}{xid},"lsn":{lsn},"commit_lsn":{lsn},"ordinal":'


def _value(before: str, after: str, tail: str) -> bytes:
    return f'{{"before":{before},"after":{after}{tail}'.encode()
