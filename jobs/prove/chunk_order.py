"""The order of a view's key in Postgres: where its chunks begin and end, as conditions over its columns c1, c2, ..

In: a view and the types that Postgres gives its columns. Out: SQL. Keeps true: comparisons are those by which Postgres
sorts the key, operators of extensions' types included; a view whose key has no such order is read in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any, Final

import psycopg

from cdc.names import quote_literal
from jobs.prove.source import ColumnType, SourceCut, column_name
from sinks.spec import ViewSpec
from snapshot.key_order import KeyColumn, KeyOrder

Key = tuple[str, ...]

# Types without a default order of their own are compared as others: varchar as text, arrays and ranges element by
# element. Of pg_catalog's alone: an extension's operators are in no search path.
_OPERATORS: Final = """
SELECT pg_catalog.format_type(t.oid, %s), n.nspname = 'pg_catalog' AND (t.oid = 1043 OR t.typcategory IN ('A', 'R')),
       t.typtype = 'e',
       (SELECT array_agg(format('OPERATOR(%%I.%%s)', pn.nspname, p.oprname) ORDER BY o.amopstrategy)
        FROM pg_catalog.pg_opclass c
        JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
        JOIN pg_catalog.pg_amop o ON o.amopfamily = c.opcfamily
        JOIN pg_catalog.pg_operator p ON p.oid = o.amopopr
        JOIN pg_catalog.pg_namespace pn ON pn.oid = p.oprnamespace
        WHERE c.opcintype = t.oid AND c.opcdefault AND o.amoplefttype = t.oid AND o.amoprighttype = t.oid
          AND o.amopstrategy BETWEEN 1 AND 5)
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE t.oid = %s
"""
_PLAIN: Final = tuple(f"OPERATOR(pg_catalog.{sign})" for sign in ("<", "<=", "=", ">=", ">"))
_STRATEGIES: Final = 5
_PERMUTED_MAX: Final = 4


class ChunkOrder:
    """Chunks of one view, by its key's columns in the order in which Postgres reads them most cheaply."""

    def __init__(self, spec: ViewSpec, columns: Sequence[KeyColumn], order: KeyOrder) -> None:
        self._spec = spec
        self._columns = columns
        self._order = order

    @classmethod
    def of(cls, source: SourceCut, spec: ViewSpec, types: Sequence[ColumnType], rows: int) -> ChunkOrder | None:
        """None where chunks of so many rows cannot be told: no order, keys that may be null, or arrive concealed."""
        if spec.nullable_key or not spec.key or set(spec.key) & spec.concealed.keys():
            return None
        places = [spec.columns.index(name) for name in spec.key]
        columns = [_column(source.connection, at, types[at]) for at in places]
        found = [column for column in columns if column is not None]
        if len(found) < len(columns):
            return None
        # The key's index may have the columns in another order than the view.
        orders = [KeyOrder(list(each)) for each in (permutations(found) if len(found) <= _PERMUTED_MAX else [found])]
        made = [cls(spec, found, order) for order in orders]
        return min(made, key=lambda each: each.cost(source, None, rows))

    def cost(self, source: SourceCut, begin: Key | None, rows: int) -> float:
        """What the planner expects of a chunk."""
        first = f"ORDER BY {self._order.columns} LIMIT {rows}"
        return source.estimate(self._spec, self.between(begin, None), first).cost

    def end(self, cut: SourceCut, begin: Key | None, rows: int, last: Key | None = None) -> Key | None:
        """The key of the row that is so many further on; None where there are not so many left, up to the last key."""
        return cut.key_at(self._spec, self._order.names, self.between(begin, last), rows - 1)

    def last(self, cut: SourceCut) -> Key | None:
        """The last key that there is; None without rows."""
        return cut.key_at(self._spec, self._order.names, "true", -1)

    def between(self, begin: Key | None, end: Key | None) -> str:
        """The rows after one key, up to another; from the first, or to the last, where there is none."""
        conditions = [self._order.after(begin)] if begin is not None else []
        conditions += [self._order.until(end)] if end is not None else []
        return " AND ".join(conditions) or "true"

    def among(self, keys: Sequence[Key]) -> str:
        """The rows of these keys, as the view has them; what Postgres prints no value as has none."""
        rows = [", ".join(map(self._literal, self._columns, key)) for key in keys if "\0" not in "".join(key)]
        if not rows:
            return "false"
        same = " AND ".join(
            f"{column.name} {column.operators[2]} w.w{at}" for at, column in enumerate(self._columns, 1)
        )
        names = ", ".join(f"w{at}" for at in range(1, len(self._columns) + 1))
        values = ", ".join(f"({row})" for row in rows)
        return f"EXISTS (SELECT FROM (VALUES {values}) w({names}) WHERE {same})"

    def _literal(self, column: KeyColumn, text: str) -> str:
        return f"{quote_literal(text)}::{column.type_name}"


def _column(connection: psycopg.Connection[Any], at: int, kind: ColumnType) -> KeyColumn | None:
    row = connection.execute(_OPERATORS, (kind.mod, kind.oid)).fetchone()
    if row is None:
        return None
    type_name, is_alike, is_enum, operators = row
    if operators is not None and len(operators) == _STRATEGIES:
        return KeyColumn(column_name(at), type_name, tuple(operators))
    return KeyColumn(column_name(at), type_name, _PLAIN) if is_alike or is_enum else None
