"""What a table is read from: only itself, as the log has it; a partitioned root stands for its partitions.

In: a connection and a relation. Out: the item for FROM or LOCK TABLE, and the COPY that reads it. Keeps true: a column
whose value is not published is not read.
"""

from __future__ import annotations

from typing import Any

import psycopg

from cdc.changes import Relation
from cdc.names import quote_ident
from cdc.privacy import Privacy
from cdc.relations import selected


def table_source(connection: psycopg.Connection[Any], relation: Relation) -> str:
    """The table's quoted name, with ONLY but for a partitioned one: inheriting tables are tables of their own."""
    found = connection.execute(
        "SELECT relkind::text FROM pg_catalog.pg_class WHERE oid = %s", (relation.oid,)
    ).fetchone()
    only = "" if found is not None and found[0] == "p" else "ONLY "
    return f"{only}{quote_ident(relation.schema)}.{quote_ident(relation.name)}"


def copy_statement(source: str, relation: Relation, privacy: Privacy, condition: str = "") -> bytes:
    """The COPY of what is published of it; `condition` begins with its WHERE."""
    columns = ", ".join(selected(relation, privacy))
    return f"COPY (SELECT {columns} FROM {source}{condition}) TO STDOUT".encode()  # noqa: S608  all of it is quoted
