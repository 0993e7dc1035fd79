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
    begin_copy(pg, statement)
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
            await_rows(pg)
        else:
            break
    yield lines
    require_success(pg)


def begin_copy(pg: pq.abc.PGconn, statement: bytes) -> None:
    """Ask for the rows."""
    result = pg.exec_(statement)
    if result.status != pq.ExecStatus.COPY_OUT:
        raise result_error(result)


def await_rows(pg: pq.abc.PGconn) -> None:
    """Wait for more from the network."""
    select.select([pg.socket], [], [])
    pg.consume_input()


def require_success(pg: pq.abc.PGconn) -> None:
    """What comes after the last row: an error is raised."""
    while (result := pg.get_result()) is not None:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise result_error(result)
