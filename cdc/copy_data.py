"""What libpq holds of a COPY, taken many pieces at a time: psycopg gives them one by one, with a call's cost each.

In: a connection in COPY OUT or COPY BOTH. Out: the pieces (rows, or frames of a walsender) that have arrived, in order.
Keeps true: nothing is read from the network, so no more is taken than libpq holds; compiled code calls the functions of
the very library that psycopg uses, or Python does its work.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from psycopg import pq

from cdc import compiled
from cdc.linked import addresses

_MODULES: Final = {"binary": "psycopg_binary.pq", "c": "psycopg_c.pq"}
_NOTHING_NOW: Final = 0


@cache
def copy_functions() -> tuple[int, ...] | None:
    """Where PQgetCopyData and PQfreemem lie, or None where that can't be told."""
    module = _MODULES.get(pq.__impl__)
    return addresses(module, "PQgetCopyData", "PQfreemem") if module is not None else None


class Taken(NamedTuple):
    """Pieces, their bytes, and whether the COPY has ended, for which the connection has the reason."""

    pieces: list[bytes]
    size: int
    has_ended: bool


class CopyData:
    """The COPY of one connection. `compiled` encodes its rows without making pieces of them, where that can be done."""

    def __init__(self, pg: Any) -> None:
        self._pg = pg
        functions = copy_functions()
        self.compiled: Any = None
        if compiled.records is not None and functions is not None:
            self.compiled = compiled.records.CopyData(pg.pgconn_ptr, *functions)

    def take(self, pieces_max: int, bytes_max: int) -> Taken:
        """What has arrived, up to the limits."""
        if self.compiled is not None:
            pieces, size, answer = self.compiled.take(pieces_max, bytes_max)
            return Taken(pieces, size, answer < _NOTHING_NOW)
        pieces, size = [], 0
        while len(pieces) < pieces_max and size < bytes_max:
            length, data = self._pg.get_copy_data(1)
            if length <= _NOTHING_NOW:
                return Taken(pieces, size, length < _NOTHING_NOW)
            pieces.append(bytes(data))
            size += length
        return Taken(pieces, size, has_ended=False)
