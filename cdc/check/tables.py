"""Whether each captured table can be followed without loss, and without harm to who writes to it.

In: a connection and relations. Out: facts of the catalogue, and the findings that follow from them (pure). Invariant: a
table with a blocking finding is never published, since UPDATE and DELETE would then fail in the application.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.changes import Relation
from cdc.check.finding import Finding, critical, warning
from cdc.names import quote_ident
from cdc.sizes import size_text
from cdc.sqlstate import translated

_FACTS = """
SELECT c.oid::int8,
       coalesce(bool_or(k.indisprimary AND NOT k.indimmediate), false),
       pg_catalog.row_security_active(c.oid),
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attgenerated <> '' AND NOT a.attisdropped
               AND (a.attgenerated = 'v' OR current_setting('server_version_num')::int < 180000)
             ORDER BY a.attnum),
       stored.identities, stored.index_lacks_key, stored.toasted, stored.names, stored.long_bytes, stored.updates
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
CROSS JOIN LATERAL (
    -- The rows of a partitioned table lie in its leaves, and so do their identity and TOAST.
    SELECT coalesce(string_agg(DISTINCT leaf.relreplident::text, ''), '') AS identities,
           coalesce(bool_or(leaf.relreplident = 'i' AND NOT EXISTS (
               SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_index p ON p.indrelid = i.indrelid
               WHERE i.indrelid = leaf.oid AND i.indisreplident AND p.indisprimary
                 AND i.indkey::int2[] @> p.indkey::int2[])), false) AS index_lacks_key,
           ARRAY(SELECT DISTINCT a.attname::text FROM pg_catalog.pg_attribute a
                 JOIN pg_catalog.pg_class t ON t.oid = a.attrelid
                 WHERE a.attrelid = ANY (array_agg(leaf.oid)) AND a.attnum > 0 AND NOT a.attisdropped
                   AND a.attstorage IN ('x', 'e') AND a.attgenerated = ''
                   AND t.reltoastrelid <> 0 AND t.relreplident <> 'f'
                   AND NOT EXISTS (SELECT FROM pg_catalog.pg_index p WHERE p.indrelid = t.oid AND p.indisprimary
                                   AND a.attnum = ANY (p.indkey))
                 ORDER BY 1) AS toasted,
           ARRAY(SELECT pg_catalog.format('%%I.%%I', n.nspname, t.relname)
                 FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
                 WHERE t.oid = ANY (array_agg(leaf.oid)) ORDER BY 1) AS names,
           coalesce(sum(pg_catalog.pg_relation_size(leaf.reltoastrelid))
               FILTER (WHERE leaf.reltoastrelid <> 0 AND leaf.relreplident <> 'f'), 0)::int8 AS long_bytes,
           coalesce(sum(pg_catalog.pg_stat_get_tuples_updated(leaf.oid)), 0)::int8 AS updates
    FROM pg_catalog.pg_class leaf
    WHERE leaf.oid = c.oid AND c.relkind = 'r'
       OR leaf.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(c.oid) WHERE isleaf AND c.relkind = 'p')
) stored
WHERE c.oid = ANY (%s::oid[])
GROUP BY c.oid, c.relkind, stored.identities, stored.index_lacks_key, stored.toasted, stored.names, stored.long_bytes,
         stored.updates
"""
_NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the catalogue says of a captured table beyond its relation."""

    relation: Relation
    key_is_deferrable: bool
    policy_applies: bool
    has_children: bool
    generated: tuple[str, ...]
    """Generated columns that the log leaves out: all before 18, the virtual ones from then on."""
    identities: str
    """The letters of pg_class.relreplident that occur in it or its leaves."""
    index_lacks_key: bool
    toasted: tuple[str, ...]
    stored: tuple[str, ...]
    """The tables that hold the rows, as SQL writes them: the table itself, or the leaves of a partitioned one."""
    long_bytes: int
    """What its long values take, where their updates do not log them."""
    updates: int
    """How many rows were updated since the statistics began."""

    @property
    def sql(self) -> str:
        """The table's name in SQL."""
        return f"{quote_ident(self.relation.schema)}.{quote_ident(self.relation.name)}"


def table_facts(connection: psycopg.Connection[Any], relations: Sequence[Relation]) -> list[TableFacts]:
    """The facts of each relation; whether a policy applies is told for the connection's own role."""
    by_oid = {relation.oid: relation for relation in relations}
    with translated():
        rows = {row[0]: row[1:] for row in connection.execute(_FACTS, [list(by_oid)])}
    return [_table_facts(relation, *rows[oid]) for oid, relation in by_oid.items() if oid in rows]


def _table_facts(relation: Relation, *row: Any) -> TableFacts:
    deferrable, policy, children, generated, identities, index_lacks_key, toasted, stored, long_bytes, updates = row
    return TableFacts(
        relation,
        deferrable,
        policy,
        children,
        tuple(generated),
        identities,
        index_lacks_key,
        tuple(toasted),
        tuple(stored),
        long_bytes,
        updates,
    )


def blocking(facts: TableFacts) -> Finding | None:
    """Why the table must not be published, if so."""
    name, table = facts.relation.qualified, facts.sql
    if facts.key_is_deferrable:
        return critical(
            "KEY_DEFERRABLE",
            f"{name}: the primary key is deferrable, so two rows may hold one key inside a transaction",
            f"ALTER TABLE {table} DROP CONSTRAINT .., ADD PRIMARY KEY (..), or add the table to source.exclude",
        )
    if not facts.relation.key:
        return critical(
            "NO_KEY",
            f"{name}: no primary key, so its rows cannot be told apart",
            f"ALTER TABLE {table} ADD PRIMARY KEY (..), or add the table to source.exclude",
        )
    if "n" in facts.identities:
        return critical(
            "IDENTITY_NOTHING",
            f"{name}: REPLICA IDENTITY NOTHING keeps the keys of updated and deleted rows out of the log",
            _altered(facts, "REPLICA IDENTITY DEFAULT"),
        )
    if facts.index_lacks_key:
        return critical(
            "IDENTITY_INDEX",
            f"{name}: its REPLICA IDENTITY index leaves out primary key columns, so deletes cannot be told",
            _altered(facts, "REPLICA IDENTITY DEFAULT"),
        )
    return None


def findings_of(facts: TableFacts, *, server_version: int, read_role: str | None) -> Iterator[Finding]:
    """Everything to say about one table."""
    name = facts.relation.qualified
    if (found := blocking(facts)) is not None:
        yield found
    if facts.policy_applies and read_role is not None:
        yield critical(
            "ROW_SECURITY",
            f"{name}: row-level security applies to {read_role}, so the snapshot would fail",
            f"ALTER ROLE {quote_ident(read_role)} BYPASSRLS, or add the table to source.exclude",
        )
    if facts.toasted and facts.long_bytes and facts.updates:
        yield warning(
            "TOAST_LEFT_OUT",
            f"{name}: {facts.updates:,} updates so far, and {size_text(facts.long_bytes)} of long values: an update "
            f"that leaves {_some(facts.toasted)} alone does not log them, and capture reads them again from the table "
            "(FULL avoids that, for more WAL)",
            _altered(facts, "REPLICA IDENTITY FULL"),
        )
    if facts.generated:
        stored = "make them STORED" if server_version >= 180000 else "upgrade to Postgres 18"
        yield warning(
            "GENERATED_COLUMN",
            f"{name}: the log leaves these generated columns out: {_some(facts.generated)}",
            f"compute them in a view, or {stored}",
        )
    if facts.has_children:
        yield warning(
            "INHERITED",
            f"{name}: tables inherit from it; their rows are captured only under their own names",
            "add the inheriting tables to source.tables as well",
        )


def _altered(facts: TableFacts, what: str) -> str:
    statements = [f"ALTER TABLE {table} {what}" for table in facts.stored]
    more = f"; and so {len(statements) - _NAMED_MAX} more partitions" if len(statements) > _NAMED_MAX else ""
    return "; ".join(statements[:_NAMED_MAX]) + more


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
