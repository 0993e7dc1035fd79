"""Who applies: the consumer group of the control topic, whose one partition makes its owner *the* apply process.

In: settings. Out: the owner as the broker sees it (`host:pid`), or None.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import MemberDescription

from cdc.kafka_clients import admin, translated
from cdc.names import control_topic
from cdc.settings import Settings
from jobs.control.topic import TIMEOUT_S

_RETRY_S: Final = 0.1
# A broker that has just started, or made its first group, has no coordinator for a moment.
_NO_COORDINATOR_YET: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def apply_group(pipeline: str) -> str:
    """The consumer group of apply processes."""
    return f"afterimage-{pipeline}-apply"


def this_process() -> str:
    """`host:pid`, the client id by which others see this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def apply_owner(settings: Settings, *, timeout_s: float = TIMEOUT_S) -> str | None:
    """The apply process that runs now, as `host:pid`; None when none does."""
    group, topic = apply_group(settings.pipeline), control_topic(settings.pipeline)
    for member in _members(settings, group, timeout_s):
        owned = member.assignment.topic_partitions if member.assignment else []
        if any((partition.topic, partition.partition) == (topic, 0) for partition in owned):
            return str(member.client_id)
    return None


def _members(settings: Settings, group: str, timeout_s: float) -> list[MemberDescription]:
    deadline = time.monotonic() + timeout_s
    with translated("asking who runs apply"):
        client = admin(settings.kafka)
        while True:
            described = client.describe_consumer_groups([group], request_timeout=timeout_s)[group]
            try:
                return list(described.result(timeout_s + 5).members)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.GROUP_ID_NOT_FOUND:
                    return []
                if code not in _NO_COORDINATOR_YET or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)
