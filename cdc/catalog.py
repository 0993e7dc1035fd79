"""What the catalogue says about tables: their columns as the log carries them, their key and their identity.

In: a connection and table patterns. Out: Relations, ordered by name: ordinary tables and roots of partitioned ones.
Invariant: columns are exactly those that pgoutput sends; a deferrable primary key is none, since inside a transaction
two rows may hold it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from cdc.changes import Column, Part, Relation
from cdc.errors import ConfigError, OperatorError
from cdc.nearest import suggestion
from cdc.sqlstate import translated
from cdc.table_patterns import TablePattern, parse_all, written

_TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relispartition
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY n.nspname, c.relname
"""

# Domains, and arrays of domains, down to the type that says how a value is printed. A domain over a domain has no
# modifier of its own, so the first one found on the way is the one that counts.
_RESOLVED = """
WITH RECURSIVE domain(oid, base, mod) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_catalog.pg_type WHERE typtype = 'd'
    UNION ALL
    SELECT d.oid, t.typbasetype, CASE WHEN d.mod >= 0 THEN d.mod ELSE t.typtypmod END
    FROM domain d JOIN pg_catalog.pg_type t ON t.oid = d.base AND t.typtype = 'd'
), plain AS (
    SELECT d.* FROM domain d JOIN pg_catalog.pg_type t ON t.oid = d.base AND t.typtype <> 'd'
), resolved AS (
    SELECT * FROM plain
    UNION ALL
    SELECT a.typarray, b.typarray, p.mod
    FROM plain p
    JOIN pg_catalog.pg_type a ON a.oid = p.oid AND a.typarray <> 0
    JOIN pg_catalog.pg_type b ON b.oid = p.base AND b.typarray <> 0
)
"""
_COLUMNS = (
    _RESOLVED
    + """
SELECT c.oid::int8, n.nspname, c.relname, c.relreplident::text, a.attname, a.atttypid::int8,
       CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE coalesce(r.mod, -1) END,
       pg_catalog.format_type(a.atttypid, a.atttypmod), coalesce(r.base, a.atttypid)::int8,
       coalesce(a.attnum = ANY (i.indkey), false), NOT a.attnotnull, NULL, a.attnum::int4, a.xmin::text::int8,
       a.atthasmissing
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     AND a.attgenerated::text = ANY (%(generated)s)
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary AND i.indimmediate
LEFT JOIN resolved r ON r.oid = a.atttypid
WHERE c.oid = ANY (%(oids)s::oid[])
ORDER BY n.nspname, c.relname, a.attnum
"""
)
_BASE_TYPES = (
    _RESOLVED
    + """
SELECT t.oid::int8, coalesce(r.base, t.oid)::int8
FROM pg_catalog.pg_type t LEFT JOIN resolved r ON r.oid = t.oid WHERE t.oid = ANY (%s::oid[])
"""
)

# A partition that was made as one got its row type and its columns in the same step of the command that linked it;
# attaching writes every column anew. What can't be told counts as attached: it may have brought rows.
_PARTS = """
WITH RECURSIVE tree(root, oid, attached) AS (
    SELECT oid, oid, false FROM pg_catalog.pg_class WHERE oid = ANY (%s::oid[])
    UNION ALL
    SELECT t.root, c.oid, t.attached OR y.xmin IS DISTINCT FROM i.xmin OR NOT EXISTS (
        SELECT FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.xmin = y.xmin AND a.cmin = y.cmin)
    FROM tree t
    JOIN pg_catalog.pg_class p ON p.oid = t.oid AND p.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    LEFT JOIN pg_catalog.pg_type y ON y.oid = c.reltype
)
SELECT t.root::int8, c.oid::int8, c.relfilenode::int8, coalesce(t.attached, true)
FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid AND c.relkind = 'r'
ORDER BY 1, 2
"""


class Unfit(enum.Enum):
    """Why something that looks like a table has no changes of its own in the log."""

    FOREIGN = "a foreign table"
    VIEW = "a view"
    MATERIALIZED = "a materialized view"
    UNLOGGED = "an unlogged table"
    TEMPORARY = "a temporary table"
    PARTITION = "a partition, captured as part of its root"


_UNFIT_KINDS = {"f": Unfit.FOREIGN, "v": Unfit.VIEW, "m": Unfit.MATERIALIZED}
_UNFIT_PERSISTENCE = {"u": Unfit.UNLOGGED, "t": Unfit.TEMPORARY}


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or what looks like one; `unfit` says why it cannot be captured, if so."""

    oid: int
    schema: str
    name: str
    unfit: Unfit | None

    @property
    def text(self) -> str:
        """The name as the configuration writes it."""
        return written(self.schema, self.name)


def load_relations(
    connection: psycopg.Connection[Any], patterns: Sequence[str], exclude: Sequence[str] = ()
) -> list[Relation]:
    """The captured relations; a pattern that names nothing capturable is a ConfigError with the nearest names."""
    return _relations(connection, [table.oid for table in match_tables(connection, patterns, exclude)[0]])


def require_keys(relations: Iterable[Relation]) -> None:
    """Refuse tables whose rows can't be told apart."""
    keyless = [relation.qualified for relation in relations if not relation.key]
    if keyless:
        raise OperatorError(
            f"without a primary key, rows can't be told apart: {', '.join(keyless)}",
            "add a primary key, or name the table under source.exclude",
            code="NO_KEY",
        )


def relation_by_oid(connection: psycopg.Connection[Any], oid: int) -> Relation | None:
    """The relation as the catalogue describes it now; None when it is gone."""
    return relations_by_oid(connection, [oid]).get(oid)


def relations_by_oid(connection: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, Relation]:
    """Those of the relations that are still there, as the catalogue describes them now."""
    return {relation.oid: relation for relation in _relations(connection, list(oids))}


def base_types(connection: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, int]:
    """Each type and the type that says how its values are printed; types that are gone are missing."""
    with translated():
        return dict(connection.execute(_BASE_TYPES, [list(oids)]).fetchall())


def match_tables(
    connection: psycopg.Connection[Any], patterns: Sequence[str], exclude: Sequence[str] = ()
) -> tuple[list[Table], list[Table]]:
    """Tables to capture, and what a pattern matched besides that has no changes in the log."""
    wanted, unwanted = parse_all(patterns), parse_all(exclude)
    tables = all_tables(connection)
    kept = [table for table in tables if not _any(unwanted, table)]
    for pattern in wanted:
        _require_match(pattern, kept)
    matched = [table for table in kept if _any(wanted, table)]
    return [table for table in matched if table.unfit is None], [table for table in matched if table.unfit]


def is_configured(schema: str, name: str, patterns: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether the configuration wants a table of this name."""
    table = Table(0, schema, name, None)
    return _any(parse_all(patterns), table) and not _any(parse_all(exclude), table)


def all_tables(connection: psycopg.Connection[Any]) -> list[Table]:
    """Everything outside the system's schemas that looks like a table, by name."""
    with translated():
        return [_table(*row) for row in connection.execute(_TABLES)]


def _table(oid: int, schema: str, name: str, kind: str, persistence: str, is_partition: bool) -> Table:
    unfit = _UNFIT_KINDS.get(kind) or _UNFIT_PERSISTENCE.get(persistence)
    return Table(oid, schema, name, unfit or (Unfit.PARTITION if is_partition else None))


def _any(patterns: Iterable[TablePattern], table: Table) -> bool:
    return any(pattern.matches(table.schema, table.name) for pattern in patterns)


def _require_match(pattern: TablePattern, tables: list[Table]) -> None:
    matched = [table for table in tables if pattern.matches(table.schema, table.name)]
    if any(table.unfit is None for table in matched):
        return
    if matched and (unfit := matched[0].unfit):
        raise ConfigError(
            f"source.tables: {pattern.text} is no table that can be captured: {matched[0].text} is {unfit.value}",
            "name ordinary tables, or the roots of partitioned ones",
            code="NOT_A_TABLE",
        )
    raise ConfigError(
        f"source.tables: no table matches {pattern.text}",
        suggestion(pattern.text, [table.text for table in tables if table.unfit is None], what="tables"),
        code="UNKNOWN_TABLE",
    )


def _relations(connection: psycopg.Connection[Any], oids: list[int]) -> list[Relation]:
    # pgoutput leaves generated columns out before 18; from 18 on the publication carries the stored ones.
    generated = ["", "s"] if connection.info.server_version >= 180000 else [""]
    with translated():
        rows = connection.execute(_COLUMNS, {"oids": oids, "generated": generated}).fetchall()
        parts: dict[int, list[Part]] = {}
        for root, *part in connection.execute(_PARTS, [oids]):
            parts.setdefault(root, []).append(Part(*part))
    found: dict[int, tuple[str, str, str, list[Column]]] = {}
    for oid, schema, name, identity, column, *described in rows:
        columns = found.setdefault(oid, (schema, name, identity, []))[3]
        if column is not None:
            columns.append(Column(column, *described))
    return [
        Relation(oid, schema, name, identity, tuple(columns), tuple(parts.get(oid, ())))
        for oid, (schema, name, identity, columns) in found.items()
    ]
