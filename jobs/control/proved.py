"""How proofs ended and which views have stopped alone: kept on the control topic, which holds the newest of each.

In: settings and records. Out: the same, wherever they were written. Keeps true: counts alone, no key and no value.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from cdc.errors import CdcError, ProtocolError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, TOPIC_MISSING, assign_whole, consumer, translate
from cdc.names import control_topic
from cdc.settings import Settings
from jobs.control.kept import Kept, Proved
from jobs.control.records import Withdrawn, decode
from jobs.control.topic import TIMEOUT_S, Publisher, ensure_topic

_WAIT_S: Final = 30.0


def publish_proofs(settings: Settings, proofs: Iterable[Proved]) -> None:
    """Write them down."""
    publisher = Publisher(settings, ensure_topic(settings))
    try:
        for proved in proofs:
            publisher.publish(proved)
    finally:
        publisher.close()


def newest_proofs(settings: Settings) -> dict[tuple[str, str], Proved]:
    """The newest of each view and sink."""
    return proofs_of(kept_records(settings))


def proofs_of(records: Iterable[Kept]) -> dict[tuple[str, str], Proved]:
    """Those among them."""
    return {(record.view, record.sink): record for record in records if isinstance(record, Proved)}


def kept_records(settings: Settings) -> list[Kept]:
    """What the topic keeps of views, the newest of each kind: proofs, and why views have stopped alone."""
    found: dict[str, Kept] = {}
    client = consumer(settings.kafka, f"proofs-{settings.pipeline}")
    try:
        assign_whole(client, control_topic(settings.pipeline), "reading the control topic", TIMEOUT_S)
        deadline = time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            message = client.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == END_OF_PARTITION:
                    return list(found.values())
                raise translate(error, "reading the control topic")
            try:
                record = decode(message.key(), message.value())
            except ProtocolError:
                continue
            if isinstance(record, Kept):
                found[record.id] = record
            elif isinstance(record, Withdrawn):
                found.pop(record.id, None)
    except CdcError as error:
        if error.code == TOPIC_MISSING:
            return []
        raise
    finally:
        client.close()
    raise TransientError("the control topic did not answer", "is Kafka up?", code="KAFKA_UNAVAILABLE")
