"""What may follow when a captured table changes its shape.

In: a table's relation before and after. Out: nothing if rows of the new shape may go on into the same topic, else an
OperatorError. Keeps true: no row of a shape that older records contradict is ever published.
"""

from __future__ import annotations

from cdc.changes import Column, Relation
from cdc.errors import OperatorError


def require_compatible(before: Relation, after: Relation) -> None:
    """Columns may be added; all else needs a new snapshot."""
    if (before.schema, before.name) != (after.schema, after.name):
        raise _changed(after, f"was renamed from {before.qualified}")
    if _names(before.key) != _names(after.key):
        raise _changed(after, "has another primary key")
    now = {column.name: column for column in after.columns}
    for column in before.columns:
        other = now.get(column.name)
        if other is None:
            raise _changed(after, f"lost column {column.name}")
        if (other.type_oid, other.type_mod) != (column.type_oid, column.type_mod):
            raise _changed(after, f"changed column {column.name} from {column.type_name} to {other.type_name}")
    had = {column.name for column in before.columns}
    for column in after.columns:
        if column.name not in had and not column.is_nullable:
            raise _changed(after, f"got column {column.name}, which is NOT NULL and so has values in older rows")


def _names(columns: tuple[Column, ...]) -> list[str]:
    return [column.name for column in columns]


def _changed(relation: Relation, what: str) -> OperatorError:
    return OperatorError(
        f"table {relation.qualified} {what}: its topic and its mirror can't follow yet",
        "capture the database anew under another pipeline name, or undo the change and start capture again",
        code="SCHEMA_CHANGED",
    )
