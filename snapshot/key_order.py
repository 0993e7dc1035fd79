"""A table's primary key as its index orders it, in SQL: where a chunk begins and ends.

In: the catalogue, key values as Postgres prints them. Out: conditions and lists of columns, every name quoted.
Keeps true: comparisons are those of the key's index, operators of extensions' types included; Postgres makes them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.backfill import Key
from cdc.names import quote_ident, quote_literal
from cdc.sqlstate import translated

# The operators are looked up by name in the search path, which has pg_catalog alone: citext's, say, would not be found
# there and text's taken instead, in another order than the index's. Strategies: 1 <, 2 <=, 3 =, 4 >=, 5 >.
_COLUMNS: Final = """
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
       (SELECT array_agg(format('OPERATOR(%%I.%%s)', n.nspname, p.oprname) ORDER BY o.amopstrategy)
        FROM pg_catalog.pg_amop o
        JOIN pg_catalog.pg_operator p ON p.oid = o.amopopr
        JOIN pg_catalog.pg_namespace n ON n.oid = p.oprnamespace
        WHERE o.amopfamily = c.opcfamily AND o.amoplefttype = c.opcintype AND o.amoprighttype = c.opcintype
          AND o.amopstrategy BETWEEN 1 AND 5)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = x.relam AND m.amname = 'btree'
CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS place(number)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[number]
JOIN pg_catalog.pg_opclass c ON c.oid = i.indclass[number]
WHERE i.indrelid = %s AND i.indisprimary
ORDER BY number
"""
_PLAIN: Final = [f"OPERATOR(pg_catalog.{sign})" for sign in ("<", "<=", "=", ">=", ">")]


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column: its quoted name, its type, and its index's operators < <= = >= >."""

    name: str
    type_name: str
    operators: tuple[str, ...]


class KeyOrder:
    """The order of one table's key."""

    def __init__(self, columns: list[KeyColumn]) -> None:
        self._columns = columns
        self._is_plain = all(list(column.operators) == _PLAIN for column in columns)

    @staticmethod
    def of(connection: psycopg.Connection[Any], oid: int) -> KeyOrder | None:
        """The key's order; None where it has none that an index serves."""
        with translated():
            rows = connection.execute(_COLUMNS, (oid,)).fetchall()
        columns = [KeyColumn(quote_ident(name), type_name, tuple(operators)) for name, type_name, operators in rows]
        return KeyOrder(columns) if columns and all(len(column.operators) == 5 for column in columns) else None

    @property
    def names(self) -> list[str]:
        """The key's columns."""
        return [column.name for column in self._columns]

    @property
    def columns(self) -> str:
        """All of them."""
        return ", ".join(self.names)

    def after(self, key: Key) -> str:
        """The rows that follow a key."""
        return self._row(">", key) if self._is_plain else self._expanded(key, 3, 4, 4)

    def until(self, key: Key) -> str:
        """The rows up to a key, and that one."""
        return self._row("<=", key) if self._is_plain else self._expanded(key, 1, 0, 1)

    def _row(self, sign: str, key: Key) -> str:
        return f"({self.columns}) {sign} ({', '.join(self._literals(key))})"

    def _expanded(self, key: Key, bound: int, strict: int, last: int) -> str:
        """Column by column; the first one's bound comes on top, for the index."""
        pairs = list(zip(self._columns, self._literals(key), strict=True))
        column, literal = pairs[-1]
        condition = f"{column.name} {column.operators[last]} {literal}"
        for column, literal in reversed(pairs[:-1]):
            equal = f"{column.name} {column.operators[2]} {literal} AND {condition}"
            condition = f"({column.name} {column.operators[strict]} {literal} OR ({equal}))"
        column, literal = pairs[0]
        return f"({column.name} {column.operators[bound]} {literal} AND {condition})"

    def _literals(self, key: Key) -> list[str]:
        return [f"{quote_literal(text)}::{column.type_name}" for text, column in zip(key, self._columns, strict=True)]
