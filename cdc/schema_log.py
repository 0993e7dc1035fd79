"""The schema topic as a reader sees it, read to its end.

In: the topic. Out: the newest schema record of each table that was not given up.
"""

from __future__ import annotations

import json
import time
from typing import Final

from cdc.errors import TransientError
from cdc.kafka_clients import END_OF_PARTITION, assign_whole, consumer, translate
from cdc.names import schema_topic
from cdc.schema_record import SchemaRecord
from cdc.settings import Kafka

_WAIT_S: Final = 30.0


def read_schemas(kafka: Kafka, pipeline: str) -> dict[tuple[str, str], SchemaRecord]:
    """The newest schema record of every table, by (schema, table); a table that was given up has a tombstone."""
    client = consumer(kafka, f"schema-{pipeline}")
    found: dict[tuple[str, str], SchemaRecord] = {}
    try:
        assign_whole(client, schema_topic(pipeline), "reading the schema topic", _WAIT_S)
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            message = client.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == END_OF_PARTITION:
                    return found
                raise translate(error, "reading the schema topic")
            key, value = message.key(), message.value()
            if value is not None:
                record = SchemaRecord.from_value(value)
                found[record.relation.schema, record.relation.name] = record
            elif key is not None and (table := _table_of(key)) is not None:
                found.pop(table, None)
    finally:
        client.close()
    raise TransientError("the schema topic did not answer", "is Kafka up?", code="KAFKA_UNAVAILABLE")


def _table_of(key: bytes) -> tuple[str, str] | None:
    """The table of a tombstone; None for one that is about no table."""
    try:
        body = json.loads(key)
        return body["schema"], body["table"]
    except (ValueError, KeyError, TypeError):
        return None
