"""Relation messages completed from the catalogue, and rows completed from their tables: what the log leaves out.

In: what pgoutput says of a table, or a change with unchanged TOAST values. Out: a Relation with key and types, a whole
Change. Keeps true: a table that no longer looks as the log says stops capture instead of being guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import psycopg

from cdc import metrics
from cdc.catalog import relation_by_oid
from cdc.changes import UNCHANGED, Change, Column, Relation
from cdc.completion import complete as from_old_row
from cdc.completion import departed
from cdc.errors import OperatorError, TransientError
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
        """The relation as the log describes it from here on."""
        current = self._look_up(message.oid)
        known = self._known.get(message.oid)
        candidates = [relation for relation in (current, known) if relation is not None]
        columns = tuple(_described(column, message, candidates) for column in message.columns)
        relation = Relation(message.oid, message.schema, message.name, message.identity, columns)
        if not relation.key:
            raise OperatorError(
                f"table {relation.qualified} has no primary key any more",
                "give it one, or take the table out of source.tables",
                code="NO_KEY",
            )
        if known is not None:
            self._privacy.require_not_renamed(relation, known, current)
        self._known[message.oid] = relation
        return relation

    def complete(self, change: Change) -> Change | None:
        """The change with its unchanged values, from the old row or the table; what is left if the row has gone."""
        change = from_old_row(change)
        assert change.new is not None
        if not self._lacks(change.relation, change.new):
            return change
        stored = self._read(change.relation, change.new)
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


def _named(name: str) -> str:
    return _doubled(quote_ident(name))


def _doubled(text: str) -> str:
    """A percent sign in a statement with parameters is written twice."""
    return text.replace("%", "%%")


def _described(wanted: RelationColumn, message: RelationMessage, candidates: list[Relation]) -> Column:
    for relation in candidates:
        for column in relation.columns:
            # A domain's modifier is its base type's in the catalogue, and none in the log.
            is_domain = column.type_oid != column.base_oid
            type_mod = wanted.type_mod if is_domain else column.type_mod
            if (column.name, column.type_oid, type_mod) == (wanted.name, wanted.type_oid, wanted.type_mod):
                return column
    raise OperatorError(
        f"column {wanted.name} of {message.schema}.{message.name} was changed or dropped before capture got to it",
        "its type can't be looked up any more: start over with a snapshot under a new pipeline name",
        code="SCHEMA_CHANGED",
    )
