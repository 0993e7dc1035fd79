"""What can be read from a log, as SQL: a table's state at a position, its versions (SCD type 2), its changes.

In: the log's name in the engine, and its Reach. Out: SELECTs for DataFusion, Postgres or polars (names in double
quotes). Keeps true: nothing at or after the position is seen, whatever was appended since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdc.names import quote_ident
from sinks.history.columns import ENDS, KEPT, MOMENT, ORDINAL
from sinks.protocol import LSN, OP

FROM_LSN, TO_LSN, FROM, TO, CURRENT = "valid_from_lsn", "valid_to_lsn", "valid_from", "valid_to", "is_current"
_NUMBER: Final = "__n"


def state(log: str, key: Sequence[str], columns: Sequence[str], lsn: int) -> str:
    """The table's rows at a position: the last change of each key, unless it says that the key is gone."""
    newest = _window(key, "DESC")
    listed = _listed(columns)
    numbered = (
        f"SELECT {listed}, {_q(OP)}, row_number() OVER ({newest}) AS {_q(_NUMBER)} FROM {log} WHERE {_q(LSN)} < {lsn}"
    )
    return f"SELECT {listed} FROM ({numbered}) AS n WHERE {_q(_NUMBER)} = 1 AND {_is_there()}"


def versions(log: str, key: Sequence[str], columns: Sequence[str], lsn: int) -> str:
    """One row per version of a key that could be seen, with the positions and times between which it held.

    It is contained in every position `p` with valid_from_lsn < p <= valid_to_lsn.
    """
    window, listed = _window(key, "ASC"), _listed(columns)
    bounds = [
        f"{_q(LSN)} AS {_own(FROM_LSN, columns)}",
        f"lead({_q(LSN)}) OVER ({window}) AS {_own(TO_LSN, columns)}",
        f"{_q(MOMENT)} AS {_own(FROM, columns)}",
        f"lead({_q(MOMENT)}) OVER ({window}) AS {_own(TO, columns)}",
    ]
    all_of = f"SELECT {listed}, {_q(OP)}, {', '.join(bounds)} FROM {log} WHERE {_q(LSN)} < {lsn}"
    start, end = _own(FROM_LSN, columns), _own(TO_LSN, columns)
    shown = ", ".join([listed, start, end, _own(FROM, columns), _own(TO, columns)])
    current = f"{end} IS NULL AS {_own(CURRENT, columns)}"
    # What a transaction changed twice nobody saw in between.
    return f"SELECT {shown}, {current} FROM ({all_of}) AS v WHERE {_is_there()} AND ({end} IS NULL OR {end} > {start})"


def changes(log: str, columns: Sequence[str], lsn: int) -> str:
    """Every change, as the log has it."""
    return f"SELECT {_listed((*columns, *KEPT))} FROM {log} WHERE {_q(LSN)} < {lsn}"


def _window(key: Sequence[str], order: str) -> str:
    return f"PARTITION BY {_listed(key)} ORDER BY {_q(LSN)} {order}, {_q(ORDINAL)} {order}"


def _is_there() -> str:
    return f"{_q(OP)} NOT IN ({', '.join(repr(op) for op in ENDS)})"


def _own(name: str, columns: Sequence[str]) -> str:
    """The name, unless a column of the table has it."""
    return _q(f"__{name}" if name in {column.lower() for column in columns} else name)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(_q, columns))


_q = quote_ident
