"""A schema record: what one captured table looks like, as the schema topic keeps it.

In: a relation. Out: key and value bytes and back. Keeps true: what comes back is what went in.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from cdc.changes import Column, Part, Relation, Trouble
from cdc.errors import ProtocolError
from cdc.lsn import format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A relation as it is published, the LSN from which it holds, and where its rows go.

    `rules` is the fingerprint of the rules that concealed its columns, if any.
    """

    lsn: int
    relation: Relation
    topic: str
    partitions: int
    rules: str | None = None
    stopped: Trouble | None = None
    """Why the table is not followed any more, if so; the relation is then the last one that was."""
    following: Relation | None = None
    """The shape in which it is being read again, if so; the relation is the one that views still show."""

    @property
    def shape(self) -> Relation:
        """What the topic's next rows look like."""
        return self.following or self.relation

    def key(self) -> bytes:
        """The record's key."""
        return _json({"schema": self.relation.schema, "table": self.relation.name})

    def value(self) -> bytes:
        """The record's value."""
        relation = self.relation
        body: dict[str, Any] = {
            "lsn": format_lsn(self.lsn),
            "schema": relation.schema,
            "table": relation.name,
            "topic": self.topic,
            "partitions": self.partitions,
            **_shape(relation),
        }
        if self.rules is not None:
            body["rules"] = self.rules
        if self.stopped is not None:
            body["stopped"] = asdict(self.stopped)
        if self.following is not None:
            body["following"] = _shape(self.following)
        return _json(body)

    @staticmethod
    def from_value(data: bytes) -> SchemaRecord:
        """The inverse of value()."""
        try:
            body = json.loads(data)
            name = body["schema"], body["table"]
            relation = _to_shape(name, body)
            stopped = Trouble(**body["stopped"]) if "stopped" in body else None
            following = _to_shape(name, body["following"]) if "following" in body else None
            lsn, topic, partitions = parse_lsn(body["lsn"]), body["topic"], body["partitions"]
            return SchemaRecord(lsn, relation, topic, partitions, body.get("rules"), stopped, following)
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError("malformed schema record", "was the schema topic written by something else?") from error


def _shape(relation: Relation) -> dict[str, Any]:
    return {
        "oid": relation.oid,
        "identity": relation.identity,
        "key": [column.name for column in relation.key],
        "columns": [_column(column) for column in relation.columns],
        "parts": [[part.oid, part.file, part.is_attached] for part in relation.parts],
    }


def _to_shape(name: tuple[str, str], body: dict[str, Any]) -> Relation:
    columns = tuple(_to_column(column) for column in body["columns"])
    return Relation(body["oid"], *name, body["identity"], columns, tuple(Part(*part) for part in body.get("parts", ())))


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type_name,
        "type_oid": column.type_oid,
        "base_oid": column.base_oid,
        "type_mod": column.type_mod,
        "key": column.is_key,
        "nullable": column.is_nullable,
        **({"rule": column.rule} if column.rule else {}),
        "number": column.number,
        "version": column.version,
        **({"filled": True} if column.is_filled else {}),
    }


def _to_column(body: dict[str, Any]) -> Column:
    return Column(
        name=body["name"],
        type_oid=body["type_oid"],
        type_mod=body["type_mod"],
        type_name=body["type"],
        base_oid=body["base_oid"],
        is_key=body["key"],
        is_nullable=body["nullable"],
        rule=body.get("rule"),
        number=body.get("number", 0),
        version=body.get("version", 0),
        is_filled=body.get("filled", False),
    )


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
