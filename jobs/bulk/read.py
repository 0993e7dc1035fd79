"""A large range of one topic as the rows of its table, without Spark: reading, parsing and choosing side by side.

In: a table, offsets [start, end) and positions [floor, ceiling). Out: the rows that are there at the ceiling, typed, or
Unusual, and then Spark reads the range. Keeps true: it answers only where its answer is Spark's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Final

import pyarrow as pa

from cdc.settings import Kafka
from jobs.bulk.newest import Newest
from jobs.bulk.parse import parsed, require_plain
from jobs.bulk.scan import scan
from jobs.bulk.typed import typed
from jobs.tables import TableInfo

_PARSERS: Final = 2
_AHEAD: Final = 1
"""Chunks of records that are held while they wait to be parsed."""


def read_rows(
    table: TableInfo,
    kafka: Kafka,
    offsets: tuple[Sequence[int], Sequence[int]],
    lsns: tuple[int, int],
    on_read: Callable[[int], None],
) -> pa.Table:
    """All rows, in the table's columns as Delta has them."""
    require_plain(table)
    newest = Newest(lsns)
    waiting: deque[Future[pa.Table]] = deque()
    with ThreadPoolExecutor(_PARSERS, "parse") as parsers, closing(scan(table, kafka, offsets, on_read)) as chunks:
        for records in chunks:
            waiting.append(parsers.submit(parsed, records, table))
            if len(waiting) > _AHEAD:
                newest.add(waiting.popleft().result())
        for parsing in waiting:
            newest.add(parsing.result())
    return typed(newest.rows(), table)
