"""Relation messages completed from the catalogue, and rows completed from their tables: what the log leaves out.

In: what pgoutput says of a table, or a change with unchanged TOAST values. Out: a Relation with key and types, a whole
Change. Keeps true: a table that no longer looks as the log says stops capture instead of being guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import psycopg

from cdc import metrics
from cdc.catalog import base_types, relation_by_oid
from cdc.changes import UNCHANGED, Change, Column, Relation, Trouble
from cdc.completion import complete as from_old_row
from cdc.completion import departed
from cdc.errors import CdcError, TransientError
from cdc.evolution import changed
from cdc.log import get
from cdc.names import quote_ident
from cdc.pgoutput import RelationColumn, RelationMessage
from cdc.postgres import connect
from cdc.privacy import Privacy
from cdc.settings import Source
from cdc.sqlstate import translated

_log = get(__name__)

# An inheriting table may have the same key; a partition's rows are its root's.
_OWN: Final = "(tableoid = %s OR tableoid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%s)))"


class SourceCatalogue:
    """Looks things up in the source as the `read` role, over one connection that is opened again when lost."""

    def __init__(self, source: Source, known: Iterable[Relation] = (), privacy: Privacy | None = None) -> None:
        self._source = source
        self._privacy = privacy or Privacy()
        self._known = {relation.oid: relation for relation in known}
        self._connection: psycopg.Connection[Any] | None = None

    def resolve(self, message: RelationMessage) -> Relation:
        """The relation as the log describes it from here on, though the catalogue may be far ahead of the log."""
        current, known = self._look_up(message.oid), self._known.get(message.oid)
        shapes = [relation for relation in (current, known) if relation is not None]
        wanted = {column.type_oid for column in message.columns if _described(column, shapes) is None}
        types = self._types(wanted) if wanted else {}
        found = [_described(column, shapes) or _from_log(column, types) for column in message.columns]
        keys = _key(message, current, known)
        columns = tuple(replace(column, is_key=column.name in keys) for column in found)
        parts = current.parts if current is not None else ()
        relation = Relation(message.oid, message.schema, message.name, message.identity, columns, parts)
        trouble = _hidden(message, current, known) or _uncovered(message, keys)
        trouble = trouble or (self._privacy.renamed(relation, known, current) if known is not None else None)
        if trouble is None and keys:
            self._known[message.oid] = relation
        return replace(relation, trouble=trouble)

    def complete(self, change: Change) -> Change | Trouble | None:
        """The change with its unchanged values, from the old row or the table; what is left if the row has gone.

        Trouble when the table is no longer one that has these columns.
        """
        change = from_old_row(change)
        assert change.new is not None
        if not self._lacks(change.relation, change.new):
            return change
        try:
            stored = self._read(change.relation, change.new)
        except CdcError as error:
            if not _is_altered(error):
                raise
            return changed(change.relation, "was altered before a long value that the log leaves out was read from it")
        metrics.TOAST_COMPLETIONS.labels("gone" if stored is None else "read").inc()
        if stored is None:
            _log.warning("row with unchanged values is gone, a delete follows", table=change.relation.qualified)
            return departed(change)
        new = tuple(now if value is UNCHANGED else value for value, now in zip(change.new, stored, strict=True))
        return replace(change, new=new)

    def _lacks(self, relation: Relation, row: tuple[Any, ...]) -> bool:
        """Whether a value is missing that will be published."""
        treatments = self._privacy.treatments(relation)
        needed = (column.name not in treatments or treatments[column.name].needs_value for column in relation.columns)
        return any(value is UNCHANGED for value, is_needed in zip(row, needed, strict=True) if is_needed)

    def close(self) -> None:
        """Close the connection, if any."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look_up(self, oid: int) -> Relation | None:
        try:
            return relation_by_oid(self._open(), oid)
        except TransientError:
            self.close()
            raise

    def _types(self, oids: set[int]) -> dict[int, int]:
        """The base types of types that no column has any more; what is gone altogether is missing."""
        try:
            return base_types(self._open(), oids)
        except TransientError:
            self.close()
            raise

    def _read(self, relation: Relation, row: tuple[Any, ...]) -> tuple[Any, ...] | None:
        columns = ", ".join(map(_doubled, selected(relation, self._privacy)))
        key = " AND ".join(f"{_named(column.name)} = %s::{_doubled(column.type_name)}" for column in relation.key)
        table = f"{_named(relation.schema)}.{_named(relation.name)}"
        query = f"SELECT {columns} FROM {table} WHERE {key} AND {_OWN}"  # noqa: S608  every name is quoted
        values = [value for column, value in zip(relation.columns, row, strict=True) if column.is_key]
        values += [relation.oid, relation.oid]
        try:
            with translated():
                result = self._open().execute(query.encode(), values).pgresult
        except TransientError:
            self.close()
            raise
        if result is None or not result.ntuples:
            return None
        # As Postgres sent them: a cast to text would drop the blanks of char(n).
        sent = [result.get_value(0, at) for at in range(result.nfields)]
        return tuple(None if value is None else value.decode() for value in sent)

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._source, self._source.read, application="afterimage catalogue")
        return self._connection


def selected(relation: Relation, privacy: Privacy) -> list[str]:
    """What is selected of each column: of one whose value is not published, no more than whether it is NULL."""
    treatments = privacy.treatments(relation)
    found = []
    for column in relation.columns:
        name, treatment = quote_ident(column.name), treatments.get(column.name)
        if treatment is None or treatment.needs_value:
            found.append(name)
        else:
            found.append("NULL" if treatment.published is None else f"CASE WHEN {name} IS NOT NULL THEN '' END")
    return found


def _is_altered(error: CdcError) -> bool:
    """Whether Postgres no longer knows the table, a column or a type, or not with these types."""
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and (cause.sqlstate or "")[:2] in ("42", "22") and cause.sqlstate != "42501"


def _named(name: str) -> str:
    return _doubled(quote_ident(name))


def _doubled(text: str) -> str:
    """A percent sign in a statement with parameters is written twice."""
    return text.replace("%", "%%")


def _described(wanted: RelationColumn, shapes: list[Relation]) -> Column | None:
    """The column as the catalogue has it now, or as it was announced."""
    for relation in shapes:
        for column in relation.columns:
            # A domain's modifier is its base type's in the catalogue, and none in the log.
            is_domain = column.type_oid != column.base_oid
            type_mod = wanted.type_mod if is_domain else column.type_mod
            if (column.name, column.type_oid, type_mod) == (wanted.name, wanted.type_oid, wanted.type_mod):
                return column
    return None


def _from_log(column: RelationColumn, base_types: Mapping[int, int]) -> Column:
    """A column that came and went while nobody looked: its values are texts of a type that may be gone as well."""
    base_oid = base_types.get(column.type_oid, column.type_oid)
    return Column(column.name, column.type_oid, column.type_mod, f"type {column.type_oid}", base_oid, is_key=False)


def _key(message: RelationMessage, current: Relation | None, known: Relation | None) -> frozenset[str]:
    """The primary key's columns: under DEFAULT those that the log marks, else the catalogue knows."""
    if message.identity == "d":
        return frozenset(column.name for column in message.columns if column.in_identity)
    shape = current or known
    return frozenset(column.name for column in shape.key) if shape is not None else frozenset()


def _hidden(message: RelationMessage, current: Relation | None, known: Relation | None) -> Trouble | None:
    """A column that the table still has and the log no longer shows: the publication leaves it out."""
    if current is None or known is None:
        return None
    sent = {column.name for column in message.columns}
    kept = {(column.name, column.number) for column in current.columns if column.number}
    hidden = [
        column.name for column in known.columns if column.name not in sent and (column.name, column.number) in kept
    ]
    return partial(f"{message.schema}.{message.name}", f"column {hidden[0]}") if hidden else None


def partial(table: str, what: str) -> Trouble:
    """The trouble of a table that is published in part."""
    return Trouble(
        "PUBLICATION_PARTIAL",
        f"the publication leaves out {what} of {table}",
        "run: afterimage check --fix; capture then reads the table again by itself",
    )


def _uncovered(message: RelationMessage, keys: frozenset[str]) -> Trouble | None:
    """A replica identity by index has to contain the key, or deletes can't be told."""
    marked = {column.name for column in message.columns if column.in_identity}
    if message.identity != "i" or keys <= marked:
        return None
    table = f"{message.schema}.{message.name}"
    return Trouble(
        "REPLICA_IDENTITY",
        f"the replica identity of {table} does not cover its primary key",
        f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT; capture then reads it again by itself",
    )
