"""COPY TO STDOUT as lists of lines, read from libpq itself: a generator's step per row would cost more than the row.

In: a connection and a COPY statement. Out: lines as they came, in order. Keeps true: an error of the server is raised,
never taken for the end.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import pq

from cdc.sqlstate import result_error


def copy_lines(
    connection: psycopg.Connection[Any], statement: bytes, lines_max: int, bytes_max: int
) -> Iterator[list[bytes]]:
    """The lines, so many at a time, fewer when they are large; take them all before the connection is used again."""
    pg = connection.pgconn
    result = pg.exec_(statement)
    if result.status != pq.ExecStatus.COPY_OUT:
        raise result_error(result)
    lines: list[bytes] = []
    size = 0
    while True:
        length, data = pg.get_copy_data(1)
        if length > 0:
            lines.append(bytes(data))
            size += length
            if len(lines) >= lines_max or size >= bytes_max:
                yield lines
                lines, size = [], 0
        elif length == 0:
            select.select([pg.socket], [], [])
            pg.consume_input()
        else:
            break
    yield lines
    _require_success(pg)


def _require_success(pg: pq.abc.PGconn) -> None:
    while (result := pg.get_result()) is not None:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise result_error(result)
