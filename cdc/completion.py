"""Values that the log left out because they are stored apart (TOAST) and did not change.

In: a change. Out: the change with what its old row knows put into the new one, and what is still missing.
Keeps true: a value is taken only from where it must be the same.
"""

from __future__ import annotations

from dataclasses import replace

from cdc.changes import UNCHANGED, Change, Op


def complete(change: Change) -> Change:
    """The change itself when nothing can be filled in, else a change whose new row has more values.

    A whole old row (REPLICA IDENTITY FULL) knows them all, a key-only one the key's columns.
    """
    old, new = change.old, change.new
    if old is None or new is None or UNCHANGED not in new:
        return change
    columns = change.relation.columns
    filled = tuple(
        before if after is UNCHANGED and (column.is_key or not change.old_is_key) else after
        for before, after, column in zip(old, new, columns, strict=True)
    )
    return change if filled == new else replace(change, new=filled)


def unchanged_columns(change: Change) -> tuple[str, ...]:
    """The columns whose values are still missing: they must be read from the source."""
    if change.new is None:
        return ()
    columns = zip(change.relation.columns, change.new, strict=True)
    return tuple(column.name for column, value in columns if value is UNCHANGED)


def departed(change: Change) -> Change | None:
    """What is left of an update whose row has gone since: the delete of its old key, if it changed the key.

    What took the row away follows in the log, under the new key.
    """
    old, new = change.old, change.new
    if old is None or new is None:
        return None
    columns = zip(change.relation.columns, old, new, strict=True)
    if all(before == after for column, before, after in columns if column.is_key):
        return None
    return Change(Op.DELETE, change.relation, old, None, change.old_is_key)
