"""The pipeline's topics: made with the settings that keep them a full copy, and checked when they exist.

In: relations and settings. Out: topics in Kafka. Keeps true: table topics are compacted and never expire, and their
partition count never changes under the hash that places keys.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from cdc.errors import OperatorError, TransientError
from cdc.kafka_clients import admin, cluster, consumer, extent, translated
from cdc.names import (
    control_topic,
    dead_letter_topic,
    message_topic,
    progress_topic,
    schema_topic,
    snapshots_topic,
)
from cdc.settings import Kafka

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_WAIT_S: Final = 30.0
_AWAY_S: Final = 10.0

COMPACTION_LAG_MS: Final = _HOUR_MS
"""No record younger than this is compacted away, nor is an older one on its account: what a batch may rely on."""

TOMBSTONE_KEPT_MS: Final = _DAY_MS
"""A reader that is further behind than this could miss a delete, so apply rebuilds instead."""

_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
    "max.compaction.lag.ms": str(_DAY_MS),
    "delete.retention.ms": str(TOMBSTONE_KEPT_MS),
    "min.cleanable.dirty.ratio": "0.2",
    # Only closed segments are compacted: close one each hour or each 128 MB, whichever comes first.
    "segment.ms": str(_HOUR_MS),
    "segment.bytes": str(128 << 20),
    "max.message.bytes": str(64 << 20),
}
_SMALL: Final = {**_COMPACTED, "segment.bytes": str(16 << 20)}
_EXPIRING: Final = {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS)}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as it must be."""

    name: str
    partitions: int
    config: Mapping[str, str]


def pipeline_topics(pipeline: str) -> list[TopicPlan]:
    """The topics that every pipeline has besides those of its tables."""
    return [
        TopicPlan(progress_topic(pipeline), 1, _SMALL),
        TopicPlan(schema_topic(pipeline), 1, _SMALL),
        TopicPlan(control_topic(pipeline), 1, {**_SMALL, "min.compaction.lag.ms": "0"}),
        TopicPlan(snapshots_topic(pipeline), 1, _SMALL),
        TopicPlan(dead_letter_topic(pipeline), 1, _EXPIRING),
        TopicPlan(message_topic(pipeline), 1, {**_EXPIRING, "max.message.bytes": _COMPACTED["max.message.bytes"]}),
    ]


def table_topic(name: str, partitions: int) -> TopicPlan:
    """The topic of one table."""
    return TopicPlan(name, partitions, _COMPACTED)


class Topics:
    """Looks after topics through an admin client."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._heard: list[KafkaError] = []
        self._admin: AdminClient = admin(kafka, error_cb=self._heard.append)

    def existing(self) -> dict[str, int]:
        """Every topic with its number of partitions."""
        found = cluster(self._kafka, self._admin, self._heard, _AWAY_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def ensure(self, plans: Iterable[TopicPlan]) -> None:
        """Create what is missing; refuse what exists with another shape."""
        existing = self.existing()
        missing = []
        for plan in plans:
            if plan.name in existing:
                self._require_shape(plan, existing[plan.name])
            else:
                missing.append(plan)
        self._create(missing)

    def recreate(self, plans: Iterable[TopicPlan]) -> None:
        """Empty topics by deleting and making them anew: what an interrupted snapshot left must not stay."""
        wanted = list(plans)
        existing = self.existing()
        doomed = [plan.name for plan in wanted if plan.name in existing]
        self.delete(doomed)
        self._create(wanted)

    def delete(self, names: Collection[str]) -> None:
        """Delete topics that exist, and wait until they are gone."""
        if not names:
            return
        for future in self._admin.delete_topics(list(names), operation_timeout=_WAIT_S).values():
            with translated("deleting topics"):
                future.result()
        self._wait(lambda: not set(names) & self.existing().keys(), "the deletion of topics")

    def ends(self, topics: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The end offset of each partition of `topics` (name -> partitions)."""
        client = consumer(self._kafka, "offsets")
        try:
            return {
                topic: tuple(extent(client, topic, "reading end offsets", _WAIT_S, at)[1] for at in range(count))
                for topic, count in topics.items()
            }
        finally:
            client.close()

    def _create(self, plans: list[TopicPlan]) -> None:
        if not plans:
            return
        wanted = [
            NewTopic(
                plan.name,
                num_partitions=plan.partitions,
                replication_factor=self._kafka.replication_factor,
                config=dict(plan.config),
            )
            for plan in plans
        ]
        for future in self._admin.create_topics(wanted, operation_timeout=_WAIT_S).values():
            with translated("creating topics"):
                future.result()
        names = {plan.name for plan in plans}
        self._wait(lambda: names <= self.existing().keys(), "the creation of topics")

    def _require_shape(self, plan: TopicPlan, partitions: int) -> None:
        if partitions != plan.partitions:
            raise OperatorError(
                f"topic {plan.name} has {partitions} partitions, the configuration says {plan.partitions}",
                f"set kafka.partitions to {partitions}: a key's partition must not change",
                code="PARTITIONS_CHANGED",
            )
        policy = self._policy(plan.name)
        if policy != plan.config["cleanup.policy"]:
            raise OperatorError(
                f"topic {plan.name} has cleanup.policy={policy}, so it would not stay a full copy",
                f"kafka-configs.sh --alter --topic {plan.name} --add-config "
                f"cleanup.policy={plan.config['cleanup.policy']}",
                code="TOPIC_SETTINGS",
            )

    def _policy(self, topic: str) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with translated("reading topic settings"):
            entries = self._admin.describe_configs([resource], request_timeout=_WAIT_S)[resource].result()
        return str(entries["cleanup.policy"].value)

    def _wait(self, done: object, what: str) -> None:
        assert callable(done)
        deadline = time.monotonic() + _WAIT_S
        while not done():
            if time.monotonic() > deadline:
                raise TransientError(f"{what} takes longer than {_WAIT_S:.0f} s", "is the broker overloaded?")
            time.sleep(0.05)
