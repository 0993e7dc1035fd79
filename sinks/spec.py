"""A view as apply sees it, whoever declared it: a mirror of a table, a row-wise SELECT over one table, or a query.

In: relations and view files. Out: frozen values that travel to Spark. Column names here are Delta's (see cdc.names).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc.changes import Trouble

HIDDEN: Final = "__afterimage_"
"""How the names of Delta columns begin that no reader is shown; what Postgres calls so is escaped (cdc.names)."""


class Kind(enum.Enum):
    """How a view is derived."""

    MIRROR = "mirror"
    ROWWISE = "rowwise"
    QUERY = "query"
    """Over any number of tables and views, which are its `relations`: computed from their Delta tables."""


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
class NamedTable:
    """A table, and the offset in an SQL text at which it is named."""

    schema: str
    table: str
    at: int


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """`postgres_sql` is what the view must equal; `spark_sql` selects the same from a temp view `changes`.

    A query has no `schema`, `table`, `key_source`, `spark_sql`: its `plan` (jobs.plan.view.ViewPlan) says all of that.
    What Postgres answers in the `concealed` columns is concealed before it is compared. `key_source` are the table's
    primary-key columns that the view's `key` columns project, one to one. `named` is where `postgres_sql` names tables.
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
    named: tuple[NamedTable, ...] = ()
    stopped: Trouble | None = None
    """Why its table is not followed any more, if so: the view stays as it is."""
    reads: frozenset[str] | None = None
    """The table's columns, in Postgres's names, that a row of the view depends on; None: all of them."""
    plan: Any = field(default=None, compare=False)
    relations: tuple[str, ...] = ()
    """The views (mirrors are such) that a query reads, by name."""
    nullable_key: bool = False
    """Whether a key column may be null, which is then a value like any other."""
    max_affected: float | None = None
    """The share of a query's rows from which on it is computed in full; None: the default."""
    refresh: str = "auto"
    """`auto`, or `full`: always computed in full; `incremental` is as auto, and refused where it would not be."""
    hidden: tuple[str, ...] = ()
    """Further columns of its table, which no reader is shown: what brings a query's groups up to date."""
    printed: Mapping[str, str] = field(default_factory=dict)
    """Of the columns that are kept as Postgres prints them: what type it says they have, `jsonb` or `integer[]`."""

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns of its table."""
        return (*self.columns, *self.hidden)
