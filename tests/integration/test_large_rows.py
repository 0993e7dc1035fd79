"""Rows larger than a topic takes: refused by name, and sent once the topic takes them."""

from __future__ import annotations

import base64
import os
from hashlib import sha256
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from cdc.errors import RecordError
from cdc.kafka_clients import admin as kafka_admin
from cdc.names import topic_name
from cdc.settings import Kafka, Settings
from tests.support.capturing import RunningCapture, folded, insert_lsn, running_capture, table_messages

ROW_BYTES = 75_000_000
"""Of chance; as text it is a third more, 100 MB, which lz4 takes nothing from."""
TAKES_BYTES = 104_500_000
"""As much as a broker takes whose socket.request.max.bytes is what it comes with, 100 MiB."""


@pytest.fixture
def settings(source: Settings, kafka: Any) -> Settings:
    return source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})


def test_a_row_that_the_topic_does_not_take(settings: Settings, admin: Any) -> None:
    text = base64.b64encode(os.urandom(ROW_BYTES)).decode()
    admin.execute("INSERT INTO public.documents (body) VALUES ('small')")
    capture = RunningCapture(settings).start()
    capture.wait_for(insert_lsn(admin))
    admin.execute("INSERT INTO public.documents (body) SELECT 'before' FROM generate_series(1, 20)")
    (key,) = admin.execute("INSERT INTO public.documents (body) VALUES (%s) RETURNING id", [text]).fetchone()
    refused = capture.ended()
    capture.stop()
    assert isinstance(refused, RecordError)
    topic = topic_name(settings.pipeline, "public", "documents")
    assert refused.code == "RECORD_TOO_LARGE"
    assert topic in refused.message
    assert "key (id)" in refused.message
    assert str(key) not in refused.message
    assert len(refused.message) < 400
    _let_take(settings, topic, TAKES_BYTES)
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
    bodies = [after["body"] for after in folded(table_messages(settings, "public", "documents")).values()]
    assert len(bodies) == 22
    assert sha256(text.encode()).digest() in [sha256(body.encode()).digest() for body in bodies]


def _let_take(settings: Settings, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = kafka_admin(settings.kafka)
    for future in client.incremental_alter_configs([resource]).values():
        future.result()
