"""The control topic itself: how it is made, and how a record gets onto it for certain.

In: settings and control records. Out: a topic that exists, a record that the broker has (or a TransientError).
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from cdc.errors import TransientError
from cdc.kafka_clients import producer, translate, translated
from cdc.names import control_topic
from cdc.settings import Settings
from cdc.topics import Topics, pipeline_topics
from jobs.control.records import ControlRecord, encode

TIMEOUT_S: Final = 10.0


def ensure_topic(settings: Settings) -> str:
    """Make the control topic unless it is there; its name."""
    topic = control_topic(settings.pipeline)
    Topics(settings.kafka).ensure(plan for plan in pipeline_topics(settings.pipeline) if plan.name == topic)
    return topic


class Publisher:
    """Writes control records, one at a time; threads may share it."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._producer: Producer = producer(
            settings.kafka,
            "control",
            **{"acks": "all", "linger.ms": 0, "delivery.timeout.ms": int(TIMEOUT_S * 1000)},
        )

    def close(self) -> None:
        """Let go of the broker."""
        self._producer.close()

    def publish(self, record: ControlRecord) -> None:
        """Return once the broker has it."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        key, value = encode(record)
        with translated("writing to the control topic"):
            self._producer.produce(self._topic, key=key, value=value, partition=0, on_delivery=delivered)
            left = self._producer.flush(TIMEOUT_S + 1)
        if failures:
            raise translate(failures[0], "writing to the control topic")
        if left:
            raise TransientError("the control topic does not take records in time", "is Kafka up?")
