"""A captured table as the schema topic describes it: what declared views and mirrors are built from.

In: one JSON value of `<pipeline>._schema`. Out: a frozen TableInfo, and the same JSON again. Column names here are
Postgres's own; `key` is in the table's column order. A value of another shape is a ProtocolError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cdc.changes import Trouble
from cdc.errors import ProtocolError
from cdc.lsn import format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column: `type` is format_type()'s text, `base_oid` looks through domains, `type_mod` is the base type's.

    `rule` says how its values were concealed before they came here, if so.
    """

    name: str
    type: str
    type_oid: int
    base_oid: int
    type_mod: int = -1
    key: bool = False
    nullable: bool = True
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A relation, its topic, and the LSN from which this description holds."""

    lsn: int
    schema: str
    table: str
    oid: int
    identity: str
    key: tuple[str, ...]
    columns: tuple[ColumnInfo, ...]
    topic: str
    partitions: int
    stopped: Trouble | None = None
    """Why the table is not followed any more, if so."""

    @property
    def qualified(self) -> str:
        """`schema.table`, for people."""
        return f"{self.schema}.{self.table}"

    @classmethod
    def from_json(cls, text: str | bytes) -> TableInfo:
        """The schema topic's value."""
        try:
            return _table(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(
                "a record of the schema topic is not a table's description",
                "was the topic written by another program, or by an older version?",
                code="SCHEMA_RECORD",
            ) from error

    def to_json(self) -> str:
        """The value that from_json reads."""
        value: dict[str, Any] = {
            "lsn": format_lsn(self.lsn),
            "schema": self.schema,
            "table": self.table,
            "oid": self.oid,
            "identity": self.identity,
            "key": list(self.key),
            "columns": [_described(column) for column in self.columns],
            "topic": self.topic,
            "partitions": self.partitions,
        }
        if self.stopped is not None:
            value["stopped"] = asdict(self.stopped)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_COLUMN_FIELDS = ("name", "type", "type_oid", "base_oid", "type_mod", "key", "nullable")


def _described(column: ColumnInfo) -> dict[str, Any]:
    described = {field: getattr(column, field) for field in _COLUMN_FIELDS}
    return {**described, "rule": column.rule} if column.rule else described


def _column(value: Mapping[str, Any]) -> ColumnInfo:
    return ColumnInfo(**{name: value[name] for name in _COLUMN_FIELDS}, rule=value.get("rule"))


def _table(value: Mapping[str, Any]) -> TableInfo:
    columns = tuple(_column(column) for column in value["columns"])
    key = tuple(value["key"])
    if [column.name for column in columns if column.key] != list(key):
        raise ValueError("key and columns disagree")
    lsn = value["lsn"]
    return TableInfo(
        lsn=parse_lsn(lsn) if isinstance(lsn, str) else int(lsn),
        schema=value["schema"],
        table=value["table"],
        oid=value["oid"],
        identity=value["identity"],
        key=key,
        columns=columns,
        topic=value["topic"],
        partitions=value["partitions"],
        stopped=Trouble(**value["stopped"]) if "stopped" in value else None,
    )
