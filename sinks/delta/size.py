"""How large a batch is, and so which way it is applied.

In: changes. Out: their keys when they are few, else their count and the range of their first key column; the Way. Keeps
true: the choice is one function of the batch alone, and both ways give the same table.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sinks.delta.literals import TEMPORAL, Key, KeyColumn
from sinks.protocol import OP, UPSERT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS_MAX: Final = 1_000
"""replaceWhere costs half of a MERGE up to here; at 10,000 keys it is slower (FACTS: the crossover lies between)."""


class Way(enum.Enum):
    """How the rows get into the table."""

    REPLACE_KEYS = "replace_keys"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch holds; `keys` is None when they are too many to name, or one has a NULL in it."""

    key: tuple[KeyColumn, ...]
    count: int
    upserts: int
    keys: tuple[Key, ...] | None
    low: Any = None
    high: Any = None


def way_of(batch: Batch) -> Way:
    """The cheaper way for the batch."""
    return Way.MERGE if batch.keys is None else Way.REPLACE_KEYS


def measured(changes: DataFrame, key: Sequence[str]) -> Batch:
    """The batch's size, and its keys or their range."""
    columns = tuple(KeyColumn(name, changes.schema[name].dataType.simpleString()) for name in key)
    first = changes.select(*(_collectable(column) for column in columns), OP).limit(KEYS_MAX + 1).collect()
    keys = tuple(tuple(row)[:-1] for row in first)
    if len(first) <= KEYS_MAX and not any(value is None for each in keys for value in each):
        return Batch(columns, len(first), sum(row[-1] == UPSERT for row in first), keys)
    return _large(changes, columns)


def _large(changes: DataFrame, columns: tuple[KeyColumn, ...]) -> Batch:
    from pyspark.sql import functions as F  # noqa: N812

    leading = F.col(columns[0].quoted)
    counts = F.count("*"), F.count_if(F.col(OP) == UPSERT)
    bounds = (_as_text(columns[0], bound(leading)) for bound in (F.min, F.max))
    count, upserts, low, high = changes.agg(*counts, *bounds).collect()[0]
    return Batch(columns, count, upserts, None, low, high)


def _collectable(column: KeyColumn) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return _as_text(column, F.col(column.quoted)).alias(column.name)


def _as_text(column: KeyColumn, value: Column) -> Column:
    """Times as text: as Python values they would pass through this machine's time zone and Python's calendar."""
    return value.cast("string") if column.kind in TEMPORAL else value
