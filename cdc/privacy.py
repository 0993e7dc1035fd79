"""Columns that leave the source in another form, or not at all: excluded, hashed with a key, or masked.

In: the rules of source.columns and a relation. Out: what is published instead of it, column by column. Keeps true:
every encoder, query and proof asks here, so no value under a rule reaches Kafka; a rule that fits nothing is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdc.changes import Column, Relation, Trouble
from cdc.errors import ConfigError, OperatorError
from cdc.nearest import suggestion
from cdc.oids import BOOL, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, NUMERIC, TEXT, TIMESTAMP, TIMESTAMPTZ, UUID
from cdc.settings import EXCLUDE, HASH, MASK, Mask, Source
from cdc.table_patterns import TablePattern, parse

_STARS: Final = "***"
_ZERO: Final = {
    BOOL: "f",
    **dict.fromkeys((INT2, INT4, INT8, FLOAT4, FLOAT8, NUMERIC), "0"),
    DATE: "1970-01-01",
    TIMESTAMP: "1970-01-01 00:00:00",
    TIMESTAMPTZ: "1970-01-01 00:00:00+00",
    UUID: "00000000-0000-0000-0000-000000000000",
}
"""What a mask without a text of its own prints, where the column's type stays."""

Rule = str | Mask


@dataclass(frozen=True, slots=True)
class Treatment:
    """What becomes of one column: `published` is None when it is left out.

    `conceal` turns a printed text into the one that is published; `constant` is that text where it is always the same.
    """

    published: Column | None
    conceal: Callable[[str], str]
    constant: str | None = None

    @property
    def needs_value(self) -> bool:
        """Whether the value must be known, beyond that it is not NULL."""
        return self.published is not None and self.constant is None


Treatments = Mapping[str, Treatment]


class Privacy:
    """The rules of one pipeline, by table."""

    def __init__(self, rules: Mapping[str, Mapping[str, Rule]] | None = None, key: str | None = None) -> None:
        self._rules: list[tuple[TablePattern, Mapping[str, Rule]]] = [
            (parse(pattern), columns) for pattern, columns in (rules or {}).items()
        ]
        self._key = (key or "").encode()
        if not key and any(rule == HASH for _, columns in self._rules for rule in columns.values()):
            raise ConfigError(
                "source.columns hashes columns, and there is no key to hash them with",
                "openssl rand -hex 32 > FILE, and name the file in source.hash_key_file",
                code="HASH_KEY",
            )

    @staticmethod
    def of(source: Source) -> Privacy:
        """The rules that the configuration has."""
        return Privacy(source.columns, source.hash_secret() if source.columns else None)

    def treatments(self, relation: Relation) -> Treatments:
        """By column name; columns without a rule are not in it."""
        rules = self._of_table(relation.schema, relation.name)
        return {
            column.name: self.treatment(column, rules[column.name])
            for column in relation.columns
            if column.name in rules
        }

    def treatment(self, column: Column, rule: Rule) -> Treatment:
        """What a rule does to a column."""
        if rule == EXCLUDE:
            return Treatment(None, _withheld)
        if rule == HASH:
            return Treatment(_as_text(column, HASH), self._hash)
        if isinstance(rule, Mask):
            return Treatment(_as_text(column, MASK), lambda _: rule.mask, rule.mask)
        text = _zero(column)
        if text is None:
            return Treatment(_as_text(column, MASK), lambda _: _STARS, _STARS)
        return Treatment(replace(column, rule=MASK), lambda _: text, text)

    def rule(self, schema: str, table: str, column: str) -> Rule | None:
        """A column's rule, if it has one."""
        return self._of_table(schema, table).get(column)

    def published(self, relation: Relation) -> Relation:
        """The relation as topics and schema records have it."""
        treatments = self.treatments(relation)
        if not treatments:
            return relation
        found = [
            treatments[column.name].published if column.name in treatments else column for column in relation.columns
        ]
        return replace(relation, columns=tuple(column for column in found if column is not None))

    def fingerprint(self, schema: str, table: str) -> str | None:
        """Tells whether a table's rules or the key have changed; None without rules. It says nothing of either."""
        rules = self._of_table(schema, table)
        if not rules:
            return None
        body = {name: rule.mask if isinstance(rule, Mask) else [rule] for name, rule in rules.items()}
        key = self._key if HASH in rules.values() else b""
        return hmac.new(
            key, b"afterimage rules" + json.dumps(body, sort_keys=True).encode(), hashlib.sha256
        ).hexdigest()

    def require_fits(self, relations: Sequence[Relation]) -> None:
        """Refuse rules for tables or columns that are not there, and those that a key column cannot have."""
        for pattern, columns in self._rules:
            matched = [relation for relation in relations if pattern.matches(relation.schema, relation.name)]
            if not matched:
                raise _unfit(
                    f"no captured table matches {pattern.text}",
                    suggestion(pattern.text, [relation.qualified for relation in relations], what="tables"),
                )
            for name, rule in columns.items():
                _require_column(pattern, matched, name, rule)

    def require_unchanged(self, relation: Relation, announced: str | None) -> None:
        """Refuse to go on under other rules than a topic was begun with: its older records don't follow them."""
        if self.fingerprint(relation.schema, relation.name) != announced:
            raise OperatorError(
                f"the column rules or the hash key of {relation.qualified} are not those that its topic was begun with",
                "put them back, or capture under a new pipeline name and delete the old topics",
                code="RULES_CHANGED",
            )

    def renamed(self, relation: Relation, known: Relation, current: Relation | None) -> Trouble | None:
        """A new column while one with a rule is gone may be that one under another name: it must not get out."""
        names = {column.name for column in relation.columns}
        there = names | {column.name for column in (current.columns if current else ())}
        gone = sorted(self._of_table(relation.schema, relation.name).keys() - there)
        new = sorted(
            names - {column.name for column in known.columns} - self._of_table(relation.schema, relation.name).keys()
        )
        if not gone or not new:
            return None
        return Trouble(
            "RULE_RENAMED",
            f"{relation.qualified} has no column {gone[0]} any more, which has a rule, and has a new one, {new[0]}",
            f"was it renamed? Then its rule must go with it: rename it back, or give {new[0]} a rule too",
        )

    def _of_table(self, schema: str, table: str) -> dict[str, Rule]:
        found: dict[str, Rule] = {}
        for pattern, columns in self._rules:
            if pattern.matches(schema, table):
                found |= columns
        return found

    def _hash(self, text: str) -> str:
        return hmac.digest(self._key, text.encode(), "sha256").hex()


def _withheld(_: str) -> str:
    raise AssertionError("an excluded column has no published form")


def _as_text(column: Column, rule: str) -> Column:
    return replace(column, type_oid=TEXT, base_oid=TEXT, type_mod=-1, type_name="text", rule=rule)


def _zero(column: Column) -> str | None:
    """The replacement that the type itself holds; domains may forbid it, so they become text."""
    if column.type_oid != column.base_oid:
        return None
    if column.base_oid == NUMERIC and column.type_mod >= 0:
        scale = (((column.type_mod - 4) & 0x7FF) ^ 1024) - 1024
        return "0." + "0" * scale if scale > 0 else "0"
    return _ZERO.get(column.base_oid)


def _require_column(pattern: TablePattern, matched: Sequence[Relation], name: str, rule: Rule) -> None:
    found = [(relation, column) for relation in matched for column in relation.columns if column.name == name]
    if not found:
        names = sorted({column.name for relation in matched for column in relation.columns})
        raise _unfit(f"{pattern.text} has no column {name}", suggestion(name, names, what="columns"))
    for relation, column in found:
        if column.is_key and rule != HASH:
            raise _unfit(
                f"{relation.qualified}: {name} is of the primary key, without which rows can't be told apart",
                f"a key column can be hashed: {name}: {HASH}",
            )


def _unfit(message: str, hint: str) -> ConfigError:
    return ConfigError(f"source.columns: {message}", hint, code="COLUMN_RULE")
