"""Patterns for tables: `schema.table`, where `*` and `?` match within a name and "quoted names" are taken literally.

In: the texts of source.tables and source.exclude. Out: patterns that match (schema, name) pairs, or a ConfigError that
shows the right form. Pure; names are compared exactly, since a hostile name must never match by folding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cdc.errors import ConfigError

# A quoted name (a doubled quote inside is one), or everything up to a dot or a quote.
_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)', re.DOTALL)
_PLAIN = re.compile(r"[^.\"*?\x00-\x20]+")


@dataclass(frozen=True, slots=True)
class TablePattern:
    """One pattern; `is_literal` when it can match one table only."""

    text: str
    schema: re.Pattern[str]
    name: re.Pattern[str]
    is_literal: bool

    def matches(self, schema: str, name: str) -> bool:
        """Whether the table is meant."""
        return self.schema.fullmatch(schema) is not None and self.name.fullmatch(name) is not None


def parse(text: str) -> TablePattern:
    """The pattern written as `text`."""
    schema = _PART.match(text)
    name = _PART.match(text, schema.end() + 1) if schema and text[schema.end() :].startswith(".") else None
    if schema is None or name is None or name.end() != len(text):
        raise ConfigError(
            f"{text!r} is not a table pattern",
            'write schema.table, for example public.orders, public.* or "My Schema"."a.b"',
            code="TABLE_PATTERN",
        )
    wild = any(character in (part[2] or "") for part in (schema, name) for character in "*?")
    return TablePattern(text, _matcher(schema), _matcher(name), is_literal=not wild)


def parse_all(texts: Iterable[str]) -> tuple[TablePattern, ...]:
    """The patterns, in order."""
    return tuple(parse(text) for text in texts)


def written(schema: str, name: str) -> str:
    """The pattern that means this table alone: what one would write in the configuration."""
    return f"{_written_part(schema)}.{_written_part(name)}"


def _matcher(part: re.Match[str]) -> re.Pattern[str]:
    quoted, plain = part.groups()
    if quoted is not None:
        return re.compile(re.escape(quoted.replace('""', '"')))
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(character) or re.escape(character) for character in plain), re.DOTALL)


def _written_part(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
