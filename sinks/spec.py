"""A view as apply sees it, whoever declared it: a mirror of a table, or a row-wise SELECT over one table.

In: relations and view files. Out: frozen values that travel to Spark. Column names here are Delta's (see cdc.names).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.changes import Trouble


class Kind(enum.Enum):
    """How a view is derived."""

    MIRROR = "mirror"
    ROWWISE = "rowwise"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """One sink of a view with its header options (`key`, `ttl`, `value` for cache; `mapping` for search)."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Concealed:
    """A table's column whose values never came here as they are, and the type of what came instead."""

    column: str
    base_oid: int
    type_mod: int


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """`postgres_sql` is what the view must equal; `spark_sql` selects the same from a temp view `changes`.

    What Postgres answers in the `concealed` columns is concealed before it is compared. `key_source` are the table's
    primary-key columns that the view's `key` columns project, one to one. `table_at` is where `postgres_sql` names the
    table.
    """

    name: str
    kind: Kind
    schema: str
    table: str
    key: tuple[str, ...]
    key_source: tuple[str, ...]
    columns: tuple[str, ...]
    postgres_sql: str
    spark_sql: str
    sinks: tuple[SinkOptions, ...]
    fingerprint: str
    file: str | None = None
    concealed: Mapping[str, Concealed] = field(default_factory=dict)
    table_at: int | None = None
    stopped: Trouble | None = None
    """Why its table is not followed any more, if so: the view stays as it is."""
    reads: frozenset[str] | None = None
    """The table's columns, in Postgres's names, that a row of the view depends on; None: all of them."""
