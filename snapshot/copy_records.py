"""A table's COPY as batches of records, compiled from libpq's buffers to the record where that can be done.

In: a connection, a COPY statement and the table's encoder. Out: records in the order of the rows, with the sum of their
checksums. Keeps true: an error of the server is raised, never taken for the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import pq

from cdc import compiled
from cdc.changes import Origin, Record
from cdc.copy_data import CopyData
from cdc.envelope import TableEncoder
from cdc.progress import checksum
from snapshot.copy_lines import await_rows, begin_copy, copy_lines, require_success
from snapshot.copy_text import parse_line

BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 2 << 20

_NOTHING_NOW: Final = 0


@dataclass(frozen=True, slots=True)
class Copied:
    """Some rows of a table."""

    records: list[Record]
    checksum: int


def copy_records(
    connection: psycopg.Connection[Any], statement: bytes, encoder: TableEncoder, origin: Origin
) -> Iterator[Copied]:
    """Take them all before the connection is used again."""
    pg = connection.pgconn
    rows = CopyData(pg)
    begin_copy(pg, statement)
    if encoder.compiled is not None and rows.compiled is not None:
        yield from _compiled(pg, rows.compiled, encoder, origin)
        return
    for lines in copy_lines(pg, rows, BATCH_ROWS, BATCH_BYTES):
        records = encoded(encoder, lines, origin, _now_ms())
        yield Copied(records, checksum(records))


def encoded(encoder: TableEncoder, lines: list[bytes], origin: Origin, ts_ms: int) -> list[Record]:
    """The records of COPY's lines."""
    records, at = encoder.plain_records(lines, 0, origin, ts_ms)
    while at < len(lines):
        records.append(encoder.read_record(parse_line(lines[at]), origin, ts_ms))
        more, at = encoder.plain_records(lines, at + 1, origin, ts_ms)
        records += more
    return records


def _compiled(pg: pq.abc.PGconn, rows: Any, encoder: TableEncoder, origin: Origin) -> Iterator[Copied]:
    batch, ts_ms = compiled.records.Encoded(), _now_ms()
    while True:
        answer = rows.encode(
            encoder.compiled, batch, BATCH_ROWS, BATCH_BYTES, origin.commit_lsn, origin.commit_ts_us, ts_ms
        )
        if isinstance(answer, bytes):
            batch.add_left(encoder.read_record(parse_line(answer), origin, ts_ms))
        elif answer > _NOTHING_NOW:
            yield Copied(batch.records, batch.checksum)
            batch, ts_ms = compiled.records.Encoded(), _now_ms()
        elif answer == _NOTHING_NOW:
            await_rows(pg)
        else:
            break
    yield Copied(batch.records, batch.checksum)
    require_success(pg)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
