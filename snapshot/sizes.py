"""How large tables are, for the choice of how to read them and for progress bars.

In: relations. Out: rows as the statistics have them, counted where they say nothing, and bytes on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.changes import Relation
from cdc.names import quote_ident
from cdc.sqlstate import translated
from cdc.tables import Tables

_COUNTED_BELOW_BYTES: Final = 256 << 20
_ROW_BYTES: Final = 100
_SIZES: Final = """
SELECT sum(CASE WHEN c.reltuples < 0 THEN NULL ELSE c.reltuples END)::int8,
       sum(pg_catalog.pg_table_size(c.oid))::int8,
       NOT pg_catalog.pg_is_in_recovery() AND EXISTS (
           SELECT FROM pg_catalog.pg_index i
           JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
           JOIN pg_catalog.pg_am m ON m.oid = x.relam
           WHERE i.indrelid = %s AND i.indisprimary AND m.amname = 'btree'
       )
FROM pg_catalog.pg_class c
WHERE c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%s) WHERE isleaf) OR c.oid = %s
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """About so many rows, and the bytes that they take; whether its key has an order, and the server ids."""

    rows: int
    bytes: int
    can_be_chunked: bool


def table_sizes(connection: psycopg.Connection[Any], relations: Sequence[Relation]) -> dict[int, TableSize]:
    """The size of each table by its oid; a partitioned one's with its partitions."""
    return {relation.oid: _size(connection, relation) for relation in relations}


def fits_chunks(tables: Tables, relation: Relation, size: TableSize) -> bool:
    """Whether the table can be read in chunks beside the stream."""
    return size.can_be_chunked and not tables.conceals_key(relation)


def _size(connection: psycopg.Connection[Any], relation: Relation) -> TableSize:
    with translated():
        row = connection.execute(_SIZES, (relation.oid,) * 3).fetchone()
        rows, size, can_be_chunked = row or (None, 0, False)
        size = int(size or 0)
        if not rows and size < _COUNTED_BELOW_BYTES:
            table = f"{quote_ident(relation.schema)}.{quote_ident(relation.name)}"
            counted = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()  # noqa: S608
            rows = counted[0] if counted else 0
    return TableSize(int(rows) if rows else size // _ROW_BYTES, size, bool(can_be_chunked))
