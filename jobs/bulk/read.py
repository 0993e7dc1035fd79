"""A large range of one topic, without Spark: reading, parsing and choosing side by side.

In: a table, offsets [start, end) and positions [floor, ceiling). Out: the rows that are there in the end, or the last
changes, typed; or Unusual, and then Spark reads the range. Keeps true: it answers only where its answer is Spark's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cdc.settings import Kafka
from jobs.bulk.newest import Newest
from jobs.bulk.parse import GONE, OFFSET, PARTITION, parsed, require_plain
from jobs.bulk.parse import LSN as COMMIT_LSN
from jobs.bulk.sample import bounds
from jobs.bulk.scan import scan
from jobs.bulk.shares import Shares
from jobs.bulk.told import Told
from jobs.bulk.typed import typed
from jobs.native_rows import Unusual
from jobs.small_range import RangeRows, records_max
from jobs.tables import TableInfo
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT

_PARSERS: Final = 2
_AHEAD: Final = 4
"""Chunks of records that are held while they wait to be parsed, or parsed while what was found is gone through."""


def read_rows(
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
    on_read: Callable[[int], None],
    folder: Path,
) -> Iterator[pa.Table]:
    """All rows, in the table's columns as Delta has them: shares, by key, of which one is held at a time.

    The folder is for what is put by meanwhile; `on_read` hears of what was read, and may raise.
    """
    require_plain(table)
    newest, least = Newest(lsns), bounds(table, kafka, offsets)
    chunks = _parsed(table, kafka, offsets, on_read)
    if least is None:
        for records in chunks:
            newest.add(records)
        yield typed(newest.rows(), table)
        return
    with Shares(folder, table, least) as shares:
        for records in chunks:
            shares.add(newest.counted(records))
        is_any = False
        for share in shares:
            on_read(0)
            is_any = True
            of_it = newest.of_a_share()
            for records in share:
                of_it.take(records)
            yield typed(of_it.rows(), table)
        if not is_any:
            raise Unusual("empty")


def read_last_changes(
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
    *,
    rows_max: int,
    bytes_max: int,
) -> RangeRows:
    """The last change per key, as jobs.small_range has them; but it does not say which keys these are."""
    require_plain(table)
    newest = Newest(lsns, rows_max=rows_max)
    told = Told("range being read", records_max(*offsets), topic=table.topic)
    for records in _parsed(table, kafka, offsets, told.on_read):
        newest.add(records)
    changes = newest.changes()
    rows = typed(changes, table)
    if rows.nbytes > bytes_max:
        raise Unusual("size")
    # The texts that they were parsed from are as large again.
    changes = changes.select([PARTITION, OFFSET, GONE, COMMIT_LSN])
    joined: Any = pc.binary_join_element_wise
    partition, offset = (changes.column(name).cast(pa.string()) for name in (PARTITION, OFFSET))
    control: dict[str, Any] = {
        OP: pc.if_else(changes.column(GONE), pa.scalar(DELETE), pa.scalar(UPSERT)),
        LSN: changes.column(COMMIT_LSN),
        AT: joined(pa.scalar(f"{table.topic}@"), partition, pa.scalar(":"), offset, ""),
    }
    for name, values in control.items():
        rows = rows.append_column(name, values)
    return RangeRows(rows, newest.truncated_at, frozenset())


def _parsed(
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    on_read: Callable[[int], None],
) -> Iterator[pa.Table]:
    """All records, in the order of reading."""
    waiting: deque[Future[pa.Table]] = deque()
    with ThreadPoolExecutor(_PARSERS, "parse") as parsers, closing(scan(table, kafka, offsets, on_read)) as chunks:
        for records in chunks:
            waiting.append(parsers.submit(parsed, records, table))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        for parsing in waiting:
            yield parsing.result()
