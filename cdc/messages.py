"""Logical messages to Kafka records: what an application wrote with pg_logical_emit_message.

In: a message and the transaction that it is part of, if it is part of one. Out: a Record of the messages' topic, in
Debezium's envelope. Keeps true: every byte of it arrives, as text where it is UTF-8, else as base64, and it says which.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from cdc import __version__
from cdc.changes import Origin, Record
from cdc.names import message_topic
from cdc.pgoutput import LogicalMessage


class MessageEncoder:
    """Encodes the messages of a pipeline's database."""

    def __init__(self, pipeline: str, database: str) -> None:
        self._pipeline = pipeline
        self._database = database
        self._topic = message_topic(pipeline)

    def record(self, message: LogicalMessage, origin: Origin | None, ordinal: int | None, ts_ms: int) -> Record:
        """The record; `ordinal` is that of the change which follows the message in its transaction."""
        body = {
            "op": "m",
            "ts_ms": ts_ms,
            "source": self._source(message, origin, ordinal),
            "message": {"prefix": message.prefix, "transactional": message.transactional, **_content(message.content)},
        }
        return Record(self._topic, 0, _json({"prefix": message.prefix}), _json(body))

    def _source(self, message: LogicalMessage, origin: Origin | None, ordinal: int | None) -> dict[str, Any]:
        return {
            "version": __version__,
            "connector": "postgresql",
            "name": self._pipeline,
            "ts_ms": None if origin is None else origin.commit_ts_us // 1000,
            "snapshot": "false",
            "db": self._database,
            "schema": "",
            "table": "",
            "txId": None if origin is None else origin.xid,
            "lsn": message.lsn,
            "commit_lsn": None if origin is None else origin.commit_lsn,
            "ordinal": ordinal,
        }


def _content(content: bytes) -> dict[str, str]:
    try:
        return {"content": content.decode(), "encoding": "text"}
    except UnicodeDecodeError:
        return {"content": b64encode(content).decode(), "encoding": "base64"}


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
