"""COPY TO STDOUT as lists of lines: a generator's step per row would cost more than the row.

In: a connection and a COPY statement. Out: lines as they came, in order. Keeps true: an error of the server is raised,
never taken for the end.
"""

from __future__ import annotations

import select
from collections.abc import Iterator

from psycopg import pq

from cdc.copy_data import CopyData
from cdc.sqlstate import result_error


def copy_lines(pg: pq.abc.PGconn, rows: CopyData, lines_max: int, bytes_max: int) -> Iterator[list[bytes]]:
    """The lines of a COPY that has begun, so many at a time, fewer when they are large."""
    lines: list[bytes] = []
    size, has_ended = 0, False
    while not has_ended:
        taken = rows.take(lines_max - len(lines), bytes_max - size)
        lines += taken.pieces
        size += taken.size
        has_ended = taken.has_ended
        if len(lines) >= lines_max or size >= bytes_max:
            yield lines
            lines, size = [], 0
        elif not has_ended:
            await_rows(pg)
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
