"""Key values as Spark SQL literals, and predicates that name the rows of some keys.

In: key columns with their Spark types, and values as Spark collects them (times as text). Out: SQL text. Keeps true: a
literal is exactly that value, whatever it holds, and has the column's own type, so that Delta can skip files by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

Key = tuple[Any, ...]

TEMPORAL: Final = {"date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ"}
_SUFFIX: Final = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column and its Spark SQL type."""

    name: str
    kind: str

    @property
    def quoted(self) -> str:
        """The column in SQL."""
        return quoted(self.name)


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def keys_predicate(columns: Sequence[KeyColumn], keys: Sequence[Key]) -> str:
    """True exactly for the rows with one of the keys."""
    assert keys, "a predicate without keys would name no row"
    per_column = [f"{column.quoted} IN ({_values(column, at, keys)})" for at, column in enumerate(columns)]
    if len(columns) == 1:
        return per_column[0]
    # The lists of single columns let Delta skip files, the tuples decide.
    names = ", ".join(column.quoted for column in columns)
    tuples = ", ".join(_tuple(columns, key) for key in keys)
    return " AND ".join([*per_column, f"({names}) IN ({tuples})"])


def range_predicate(alias: str, column: KeyColumn, low: Any, high: Any) -> str:
    """True for every row whose key column lies between the two, or is NULL, as it may be in a query's key."""
    name = f"{alias}.{column.quoted}"
    if low is None:
        return f"{name} IS NULL"
    return f"({name} BETWEEN {literal(low, column.kind)} AND {literal(high, column.kind)} OR {name} IS NULL)"


def literal(value: Any, kind: str) -> str:
    """One value (never null: a key has none) as SQL."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            # The least integer of a type has no literal: the number is read before its minus.
            return f"{value}{_SUFFIX[kind]}" if value >= 0 else f"CAST('{value}' AS {kind})"
        case float():
            return f"CAST('{_number(value)}' AS {kind})"
        case Decimal():
            return f"CAST('{value:f}' AS {kind})"
        case str() if kind in TEMPORAL:
            return f"{TEMPORAL[kind]}'{value}{'Z' if kind == 'timestamp' else ''}'"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes() | bytearray():
            return f"X'{bytes(value).hex()}'"
    raise AssertionError(f"a key column of type {kind} gave a {type(value).__name__}")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}Infinity"


def _values(column: KeyColumn, at: int, keys: Sequence[Key]) -> str:
    return ", ".join(dict.fromkeys(literal(key[at], column.kind) for key in keys))


def _tuple(columns: Sequence[KeyColumn], key: Key) -> str:
    values = ", ".join(literal(value, column.kind) for column, value in zip(columns, key, strict=True))
    return f"({values})"
