"""Which columns a query can name, and what a name stands for.

In: the items of FROM and column nodes. Out: fields, each with its attribute. Keeps true: a name that stands for nothing
or for several things is an error at its place, as in Postgres; the outer query is asked last.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from cdc.names import quote_ident
from cdc.nearest import suggestion
from jobs.declare.context import UNKNOWN_COLUMN, UNKNOWN_TABLE, Context
from jobs.identifiers import identifier
from jobs.plan.nodes import Attribute
from jobs.plan.types import Type, Typed

AMBIGUOUS: Final = "VIEW_AMBIGUOUS"


class Numbers:
    """Attributes with numbers that no other in the tree has."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self, name: str, type_: Type, *, nullable: bool = True) -> Attribute:
        """A column that nothing else is."""
        return Attribute(next(self._numbers), name, type_, nullable)


@dataclass(frozen=True, slots=True)
class Field:
    """A column under its Postgres name; None is one that cannot be named.

    `rule` conceals its values, `c_collated` says that its order is that of bytes.
    """

    name: str | None
    attribute: Attribute
    rule: str | None = None
    c_collated: bool = False
    qualifier: str | None = None

    @property
    def written(self) -> str:
        """How Postgres's text calls it."""
        name = quote_ident(self.name or "")
        return name if self.qualifier is None else f"{quote_ident(self.qualifier)}.{name}"

    @property
    def typed(self) -> Typed:
        """Its value."""
        return Typed(self.attribute.sql, self.attribute.type, c_collated=self.c_collated)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one name in FROM stands for; `key` is a table's primary key."""

    words: frozenset[tuple[str, ...]]
    fields: tuple[Field, ...]
    key: frozenset[Attribute] = frozenset()


@dataclass(frozen=True, slots=True)
class Scope:
    """All that FROM offers: by the names of its items, and the columns that can be called without one."""

    entries: tuple[Entry, ...] = ()
    visible: tuple[Field, ...] = ()

    def find(self, context: Context, node: exp.Column) -> Field | None:
        """The field that a column node means; None if nothing here has its name."""
        name, word = identifier(node.this), qualifier(node)
        among = self.visible if not word else self.entry_fields(context, node)
        if among is None:
            return None
        found = [each for each in among if each.name == name]
        if len(found) > 1:
            hint = "write which one: " + ", ".join(sorted(each.written for each in found))
            raise context.error(node, f"column {name} is ambiguous", hint, AMBIGUOUS)
        if not found and word:
            hint = suggestion(name, _names(among), what=f"columns of {'.'.join(word)}")
            raise context.error(node.this, f"{'.'.join(word)} has no column {name}", hint, UNKNOWN_COLUMN)
        return found[0] if found else None

    def entry_fields(self, context: Context, node: exp.Column) -> tuple[Field, ...] | None:
        """The columns of the item that stands before the dot."""
        word = qualifier(node)
        found = [entry for entry in self.entries if word in entry.words]
        if len(found) > 1:
            hint = "give one of them another name: .. AS name"
            raise context.error(node, f"table {'.'.join(word)} is ambiguous", hint, AMBIGUOUS)
        return found[0].fields if found else None


def unknown(context: Context, node: exp.Column, scopes: Sequence[Scope]) -> ConfigError:
    """The error that no scope has what a column node means."""
    name, word = identifier(node.this), qualifier(node)
    if word:
        words = sorted({".".join(each) for scope in scopes for entry in scope.entries for each in entry.words})
        hint = suggestion(".".join(word), words, what="tables here")
        return context.error(node, f"unknown table {'.'.join(word)}", hint, UNKNOWN_TABLE)
    known = [each for scope in scopes for each in _names(scope.visible)]
    hint = suggestion(name, known, what="columns")
    return context.error(node.this, f"no table here has a column {name}", hint, UNKNOWN_COLUMN)


def qualifier(node: exp.Column) -> tuple[str, ...]:
    """What stands before a column's dot."""
    return tuple(identifier(node.args[part]) for part in ("catalog", "db", "table") if node.args.get(part))


def entry_of(word: str, fields: Sequence[Field], more: Sequence[tuple[str, ...]] = ()) -> Entry:
    """An item of FROM that is called so."""
    words = frozenset({(word,), *more})
    return Entry(words, tuple(replace(each, qualifier=word) for each in fields))


def _names(fields: Sequence[Field]) -> list[str]:
    return [each.name for each in fields if each.name is not None]
