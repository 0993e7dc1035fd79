"""Whether Postgres gives a view's columns the types that were declared for them.

In: a view, the types by Postgres. Out: a sentence for each column of another type. Keeps true:
only what would be computed or shown otherwise counts: a numeric is one whatever digits are known of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.plan.types import Family, Type, type_of
from jobs.prove.source import ColumnType
from jobs.tables import ColumnInfo
from sinks.spec import ViewSpec

_ALIKE = {Family.DECIMAL: Family.NUMERIC, Family.UNKNOWN: Family.TEXT}


def disagreements(spec: ViewSpec, types: Sequence[ColumnType]) -> Iterator[str]:
    """Of a row-wise view nothing can be told: it keeps no types."""
    outputs = spec.plan.outputs if spec.plan is not None else ()
    for name, output, found in zip(spec.columns, outputs, types, strict=bool(outputs)):
        in_postgres = type_of(ColumnInfo(name, "another type", found.oid, found.oid, found.mod))
        if _kept(in_postgres) != _kept(output.type):
            yield f"column {name} is declared as {output.type.name}, in Postgres it is {in_postgres.name}"


def _kept(type_: Type) -> tuple[Family, int]:
    return _ALIKE.get(type_.family, type_.family), type_.width
