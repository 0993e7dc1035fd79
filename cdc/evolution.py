"""What follows when a captured table changes its shape: one decision, by the table in docs/SCHEMA_CHANGES.md.

In: a table's relation as announced and as it is from here on. Out: a Verdict. Keeps true: rows go on into the same
topic only if every older record still says what Postgres shows; what can't be told counts as changed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cdc.changes import Column, Relation, Trouble
from cdc.oids import NUMERIC, TEXT

_VARCHAR: Final = 1043
_HEADER: Final = 4
_SCALE: Final = 0xFFFF
_HEALING: Final = frozenset({"SCHEMA_CHANGED", "TABLE_JOINS", "OPEN_TRANSACTION", "POSTGRES_CONFLICT", "TABLE_ALTERED"})


class Effect(enum.Enum):
    """What is done about a change."""

    FOLLOW = "a schema record; rows go on"
    READ_AGAIN = "the table stops alone and is read again"
    STOP = "the table stops alone until a person has acted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An effect, and why the table stops, if it does."""

    effect: Effect
    trouble: Trouble | None = None


FOLLOWED: Final = Verdict(Effect.FOLLOW)


def verdict(before: Relation, after: Relation) -> Verdict:
    """The effect of the change."""
    if (trouble := _obstacle(before, after)) is not None:
        return Verdict(Effect.STOP, trouble)
    reason = next(_reasons_to_read(before, after), None)
    return FOLLOWED if reason is None else Verdict(Effect.READ_AGAIN, changed(after, reason))


def changed(relation: Relation, what: str) -> Trouble:
    """The trouble of a table that only needs to be read again."""
    return Trouble(
        "SCHEMA_CHANGED",
        f"table {relation.qualified} {what}",
        "nothing, if capture runs: it reads the table again by itself, and its views go on from there",
    )


def joining(relation: Relation) -> Trouble:
    """The trouble of a table that is read for the first time while the others flow on."""
    return Trouble(
        "TABLE_JOINS",
        f"table {relation.qualified} is being read",
        "nothing: its views come when it has been read whole",
    )


def unreadable(relation: Relation, reason: str) -> Trouble:
    """The trouble of a table that could not be read again."""
    return Trouble(
        "TABLE_UNREADABLE",
        f"table {relation.qualified} could not be read: {reason}",
        "mend that, if it is for you to mend; capture tries again every minute",
    )


def heals(trouble: Trouble) -> bool:
    """Whether capture gets over it by itself."""
    return trouble.code in _HEALING


def no_key(relation: Relation) -> Trouble:
    """The trouble of a table whose rows can't be told apart."""
    return Trouble(
        "NO_KEY",
        f"table {relation.qualified} has no primary key any more",
        "give it one: capture then reads it again by itself; or add it to source.exclude",
    )


def _obstacle(before: Relation, after: Relation) -> Trouble | None:
    if (before.schema, before.name) != (after.schema, after.name):
        return Trouble(
            "TABLE_RENAMED",
            f"table {before.qualified} was renamed to {after.qualified}",
            "capture it under its new name: see source.tables and `afterimage check --fix`; or rename it back",
        )
    if after.trouble is not None:
        return after.trouble
    return None if after.key else no_key(after)


def _reasons_to_read(before: Relation, after: Relation) -> Iterator[str]:
    """Why older records no longer say what Postgres shows."""
    if _names(before.key) != _names(after.key):
        yield "has another primary key"
    had = {column.name: column for column in before.columns}
    has = {column.name: column for column in after.columns}
    common = [name for name in _names(before.columns) if name in has]
    if common != [name for name in _names(after.columns) if name in had]:
        yield "has its columns in another order, so some were renamed"
    for name in common:
        yield from _altered(had[name], has[name], rewritten=_has_new_file(before, after))
    gained = [column for column in after.columns if column.name not in had]
    for column in gained:
        yield from _added(column, before)
    yield from _rewritten(before, after, bool(gained))


def _altered(before: Column, after: Column, *, rewritten: bool) -> Iterator[str]:
    name = before.name
    if before.number and after.number and before.number != after.number:
        yield f"lost column {name} and got another one of that name"
    if (before.type_oid, before.type_mod) != (after.type_oid, after.type_mod) and (
        rewritten or not _is_widened(before, after)
    ):
        yield f"changed column {name} from {before.type_name} to {after.type_name}"


def _added(column: Column, before: Relation) -> Iterator[str]:
    numbers = [each.number for each in before.columns]
    if column.number == 0 or 0 in numbers:
        yield f"got column {column.name}, of which the catalogue no longer says what older rows have in it"
    elif column.number <= max(numbers):
        yield f"has a column by the new name of {column.name}"
    elif column.is_filled or not column.is_nullable:
        yield f"got column {column.name}, which has a value in older rows"


def _rewritten(before: Relation, after: Relation, gained: bool) -> Iterator[str]:
    """Rows that came, went or changed without a change in the log."""
    if not before.parts or not after.parts:
        return
    had, has = {part.oid: part for part in before.parts}, {part.oid: part for part in after.parts}
    if had.keys() - has.keys():
        yield "lost a partition with its rows"
    if any(part.is_attached for oid, part in has.items() if oid not in had):
        yield "got a partition that may have brought rows"
    if _has_new_file(before, after) and (gained or _is_partitioned(after) or _has_new_versions(before, after)):
        yield "had its rows rewritten"


def _has_new_file(before: Relation, after: Relation) -> bool:
    files = {part.oid: part.file for part in before.parts}
    return any(files.get(part.oid, part.file) != part.file for part in after.parts)


def _is_partitioned(relation: Relation) -> bool:
    return any(part.oid != relation.oid for part in relation.parts)


def _has_new_versions(before: Relation, after: Relation) -> bool:
    versions = {column.name: column.version for column in before.columns}
    return any(versions.get(column.name, column.version) != column.version for column in after.columns)


def _is_widened(before: Column, after: Column) -> bool:
    """Whether every value of the old type prints the same in the new one, and Postgres leaves the rows alone."""
    if before.base_oid != before.type_oid or after.base_oid != after.type_oid:
        return False
    kinds = before.type_oid, after.type_oid
    if kinds in ((_VARCHAR, TEXT), (TEXT, _VARCHAR)):
        return after.type_mod == -1
    if kinds == (_VARCHAR, _VARCHAR):
        return after.type_mod == -1 or 0 <= before.type_mod <= after.type_mod
    if kinds == (NUMERIC, NUMERIC) and before.type_mod >= _HEADER and after.type_mod >= _HEADER:
        was, now = before.type_mod - _HEADER, after.type_mod - _HEADER
        return was & _SCALE == now & _SCALE and was >> 16 <= now >> 16
    return kinds == (NUMERIC, NUMERIC) and after.type_mod == -1


def _names(columns: tuple[Column, ...]) -> list[str]:
    return [column.name for column in columns]
