"""What stands in FROM: tables, views, queries of WITH, derived tables.

In: one item. Out: its rows and the names it offers. Keeps true: each mention of a table has attributes of its own, and
Postgres's text names each table with its schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from cdc.names import quote_ident
from jobs.declare.relations import Relation, Text
from jobs.declare.resolution import Around, Block, Named, Resolution
from jobs.declare.scopes import Entry, Field, Scope, entry_of
from jobs.identifiers import identifier
from jobs.plan.nodes import Plan, Scan

_TABLE: Final = frozenset({"this", "db", "catalog", "alias", "joins"})
_DERIVED: Final = frozenset({"this", "alias", "joins"})
_FORMS: Final = "FROM may hold tables, views, joins and (SELECT ..) AS name"
_WORDS: Final = {"only": "ONLY", "sample": "TABLESAMPLE", "ordinality": "WITH ORDINALITY", "when": "a version"}


@dataclass(frozen=True, slots=True)
class Item:
    """Rows, and what they are called."""

    plan: Plan
    scope: Scope


def from_item(resolution: Resolution, node: exp.Expr, around: Around) -> Item:
    """One item, without the joins that follow it."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return _table(resolution, node, around)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
        return _derived(resolution, node, around)
    if isinstance(node, exp.Lateral):
        hint = "join with (SELECT .. GROUP BY ..), or number the rows with row_number() and filter"
        raise resolution.refuse(node, "LATERAL is not supported in views", hint)
    raise resolution.refuse(node, "this form of FROM is not supported in views: it must name a table", _FORMS)


def _table(resolution: Resolution, node: exp.Table, around: Around) -> Item:
    for part, value in node.args.items():
        if value and part not in _TABLE:
            what = _WORDS.get(part, "this form of FROM")
            raise resolution.refuse(node, f"{what} is not supported in views", _FORMS)
    name = identifier(node.this)
    named = around.named.get(name) if not node.args.get("db") else None
    if named is not None:
        return _named(resolution, node, name, named)
    relation = resolution.relations.find(resolution.source, node)
    resolution.read[relation.name] = relation
    _write(resolution, node, relation)
    plan, fields = _scan(resolution, relation)
    word, columns = _alias(node)
    more = [] if word is not None or relation.schema is None else [(relation.schema, relation.word)]
    entry = entry_of(word or relation.word, _renamed(resolution, node, fields, columns), more)
    key = frozenset(plan.key) if relation.schema is not None else frozenset()
    return Item(plan, Scope((replace(entry, key=key),), entry.fields))


def _scan(resolution: Resolution, relation: Relation) -> tuple[Scan, list[Field]]:
    fields = [
        Field(
            column.name,
            resolution.numbers.new(column.name, column.type, nullable=column.nullable),
            column.rule,
            column.c_collated,
        )
        for column in relation.columns
    ]
    by_delta = {column.delta: each.attribute for column, each in zip(relation.columns, fields, strict=True)}
    key = tuple(by_delta[name] for name in relation.key)
    return Scan(relation.name, tuple(by_delta.values()), tuple(by_delta), key), fields


def _write(resolution: Resolution, node: exp.Table, relation: Relation) -> None:
    """Postgres's text for the table's name; a view of ours stands there as a derived table."""
    parts = [part for part in (node.args.get("db"), node.this) if part is not None]
    text = relation.text
    if relation.schema is None:
        named = tuple(replace(each, at=each.at + 1) for each in text.named)
        called = "" if node.args.get("alias") else f" {quote_ident(relation.word)}"
        text = Text(f"({text.sql}){called}", named)
    resolution.rewriting.write(parts[0].meta["start"], parts[-1].meta["end"], text)


def _named(resolution: Resolution, node: exp.Table, name: str, named: Named) -> Item:
    block = resolution.block(resolution, named.node, named.around)
    fields = _renamed(resolution, node, block.fields, named.columns)
    word, columns = _alias(node)
    return _item(block, word or name, _renamed(resolution, node, fields, columns))


def _derived(resolution: Resolution, node: exp.Subquery, around: Around) -> Item:
    for part, value in node.args.items():
        if value and part not in _DERIVED:
            raise resolution.refuse(node, "this form of a derived table is not supported in views", _FORMS)
    # What stands beside it in FROM is not visible in it.
    block = resolution.block(resolution, node.this, around)
    word, columns = _alias(node)
    if word is None:
        raise resolution.refuse(node, "a derived table needs a name", "write (SELECT ..) AS name")
    return _item(block, word, _renamed(resolution, node, block.fields, columns))


def _item(block: Block, word: str, fields: Sequence[Field]) -> Item:
    entry: Entry = entry_of(word, fields)
    return Item(block.plan, Scope((entry,), entry.fields))


def _alias(node: exp.Expr) -> tuple[str | None, tuple[str, ...]]:
    alias = node.args.get("alias")
    if alias is None:
        return None, ()
    return identifier(alias.this), tuple(identifier(each) for each in alias.args.get("columns") or [])


def _renamed(
    resolution: Resolution, node: exp.Expr, fields: Sequence[Field], names: Sequence[str]
) -> tuple[Field, ...]:
    if len(names) > len(fields):
        raise resolution.refuse(node, f"{len(names)} names for {len(fields)} columns", "leave the last ones out")
    renamed = [replace(each, name=name) for each, name in zip(fields, names, strict=False)]
    return (*renamed, *fields[len(names) :])
