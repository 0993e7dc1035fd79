"""The captured tables and what each change must become, written down without the code under test.

In: rows as Postgres prints them. Out: the values, keys and records that topics and sinks must show.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

from cdc.changes import Column, Relation
from tests.support.frames import table

PIPELINE: Final = "shop"
DATABASE: Final = "db"
PARTITIONS: Final = 2
INT4: Final = 23
TEXT: Final = 25


def _numbered(relation: Relation) -> Relation:
    columns = (replace(column, number=number) for number, column in enumerate(relation.columns, 1))
    return replace(relation, columns=tuple(columns))


ACCOUNTS: Final = _numbered(table("accounts", (("id", INT4), ("name", TEXT), ("note", TEXT)), oid=101))
EXTRA: Final = Column("extra", TEXT, -1, "text", TEXT, False, number=4)
WIDER_ACCOUNTS: Final = replace(ACCOUNTS, columns=(*ACCOUNTS.columns, EXTRA))
LINES: Final = _numbered(
    table("lines", (("a", INT4), ("b", TEXT), ("qty", INT4), ("body", TEXT)), ("a", "b"), oid=102, identity="f")
)
TAGS: Final = _numbered(table("tags", (("tag", TEXT), ("weight", INT4)), ("tag",), oid=103))

WIDEST: Final = {relation.oid: relation for relation in (WIDER_ACCOUNTS, LINES, TAGS)}
TOPICS: Final = {oid: f"{PIPELINE}.{relation.schema}.{relation.name}" for oid, relation in WIDEST.items()}
OIDS: Final = {topic: oid for oid, topic in TOPICS.items()}

Texts = tuple[str | None, ...]
Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A record of a table topic, as a reader understands it; `op` is None for a tombstone."""

    key: str
    op: str | None
    after: Values | None
    lsn: int
    ordinal: int


_REWRITTEN: Final = {ACCOUNTS.oid: 2, LINES.oid: 2, TAGS.oid: 1}
"""Which column of each table changes its type, and with it the values in all rows, now and then."""


def rewritten(relation: Relation) -> Relation:
    """The table with its column of another type."""
    at = _REWRITTEN[relation.oid]
    columns = list(relation.columns)
    columns[at] = replace(columns[at], type_mod=columns[at].type_mod + 1)
    return replace(relation, columns=tuple(columns))


def rewritten_row(relation: Relation, row: Texts) -> Texts:
    """A row after that, which no change in the log says."""
    at, column = _REWRITTEN[relation.oid], relation.columns[_REWRITTEN[relation.oid]]
    was = row[at]
    now = was if was is None else str(int(was) + 1) if column.type_oid == INT4 else f"{was}!"
    return (*row[:at], now, *row[at + 1 :])


def key_text(relation: Relation, row: Texts) -> str:
    """The record key of a row."""
    columns = zip(relation.columns, row, strict=True)
    fields = {column.name: _value(column, text) for column, text in columns if column.is_key}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def values(relation: Relation, row: Texts) -> Values:
    """A row as JSON values, NULL for columns that were added later."""
    own = [_value(column, text) for column, text in zip(relation.columns, row, strict=True)]
    return (*own, *[None] * (len(WIDEST[relation.oid].columns) - len(own)))


def partition(key: str) -> int:
    """Where a key's records go."""
    return crc32(key.encode()) % PARTITIONS


def seen(topic: str, key: bytes, value: bytes | None, position: str | None) -> Seen:
    """Read a record as any consumer would."""
    if value is None:
        assert position is not None
        lsn, ordinal = position.split(":")
        return Seen(key.decode(), None, None, int(lsn), int(ordinal))
    body = json.loads(value)
    after = body["after"]
    names = [column.name for column in WIDEST[OIDS[topic]].columns]
    row = tuple(after.get(name) for name in names) if after is not None else None
    return Seen(key.decode(), body["op"], row, body["source"]["commit_lsn"], body["source"]["ordinal"])


def _value(column: Column, text: str | None) -> object:
    return int(text) if text is not None and column.type_oid == INT4 else text
