"""What can be read from a log, as SQL: a table's state at a position, its versions (SCD type 2), its changes.

In: the log's name in the engine, and the table's Shape. Out: SELECTs for DataFusion, Postgres or polars (names in
double quotes). Keeps true: nothing at or after the position is seen, whatever was appended since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cdc.names import quote_ident
from sinks.history.columns import ENDS, KEPT, MOMENT, ORDINAL
from sinks.history.reach import Shape
from sinks.protocol import LSN, OP

FROM_LSN, TO_LSN, FROM, TO, CURRENT = "valid_from_lsn", "valid_to_lsn", "valid_from", "valid_to", "is_current"
_NUMBER: Final = "__n"


def state(log: str, shape: Shape, lsn: int) -> str:
    """The table's rows at a position: the last change of each key, unless it says that the key is gone."""
    number = f"row_number() OVER ({_window(shape, 'DESC')}) AS {_q(_NUMBER)}"
    numbered = f"SELECT {_renamed(shape)}, {_q(OP)}, {number} FROM {log} WHERE {_counted(shape, lsn)}"
    return f"SELECT {_listed(shape.stored)} FROM ({numbered}) AS n WHERE {_q(_NUMBER)} = 1 AND {_is_there()}"


def versions(log: str, shape: Shape, lsn: int) -> str:
    """One row per version of a key that could be seen, with the positions and times between which it held.

    It is contained in every position `p` with valid_from_lsn < p <= valid_to_lsn.
    """
    window, columns = _window(shape, "ASC"), shape.stored
    bounds = [
        f"{_q(LSN)} AS {_own(FROM_LSN, columns)}",
        f"lead({_q(LSN)}) OVER ({window}) AS {_own(TO_LSN, columns)}",
        f"{_q(MOMENT)} AS {_own(FROM, columns)}",
        f"lead({_q(MOMENT)}) OVER ({window}) AS {_own(TO, columns)}",
    ]
    all_of = f"SELECT {_renamed(shape)}, {_q(OP)}, {', '.join(bounds)} FROM {log} WHERE {_counted(shape, lsn)}"
    start, end = _own(FROM_LSN, columns), _own(TO_LSN, columns)
    listed = ", ".join([_listed(columns), start, end, _own(FROM, columns), _own(TO, columns)])
    current = f"{end} IS NULL AS {_own(CURRENT, columns)}"
    # What a transaction changed twice nobody saw in between.
    return f"SELECT {listed}, {current} FROM ({all_of}) AS v WHERE {_is_there()} AND ({end} IS NULL OR {end} > {start})"


def changes(log: str, shape: Shape, lsn: int) -> str:
    """Every change, as the log has it."""
    return f"SELECT {_renamed(shape)}, {_listed(KEPT)} FROM {log} WHERE {_counted(shape, lsn)}"


def _counted(shape: Shape, lsn: int) -> str:
    return f"{_q(LSN)} >= {shape.since_lsn} AND {_q(LSN)} < {lsn}"


def _window(shape: Shape, order: str) -> str:
    return f"PARTITION BY {_listed(shape.key)} ORDER BY {_q(LSN)} {order}, {_q(ORDINAL)} {order}"


def _is_there() -> str:
    return f"{_q(OP)} NOT IN ({', '.join(repr(op) for op in ENDS)})"


def _own(name: str, columns: Iterable[str]) -> str:
    """The name, unless a column of the table has it."""
    return _q(f"__{name}" if name in {column.lower() for column in columns} else name)


def _renamed(shape: Shape) -> str:
    pairs = shape.stored.items()
    return ", ".join(_q(name) if name == stored else f"{_q(stored)} AS {_q(name)}" for name, stored in pairs)


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(map(_q, columns))


_q = quote_ident
