"""Whether Kafka can be reached, lets this pipeline work, and has or would take the topics as they must be.

In: settings and the relations that will be captured. Out: findings. Creates nothing: missing topics are only tried
(validate_only), and transactions under an id of the check's own, which fences no capture.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic

from cdc.changes import Relation
from cdc.check.finding import Finding, critical, of_error, ok, warning
from cdc.errors import CdcError, TransientError
from cdc.kafka_clients import admin as admin_client
from cdc.kafka_clients import cluster, producer, translate, translated
from cdc.names import topic_name
from cdc.settings import Kafka, Settings
from cdc.sizes import size_text
from cdc.topics import TopicPlan, pipeline_topics, table_topic

_TIMEOUT_S: Final = 6.0
_REQUEST_OVERHEAD: Final = 1 << 20
_NEEDED: Final = (AclOperation.READ, AclOperation.WRITE)
# What librdkafka would write to standard error is told by findings.
_UNHEARD: Final = logging.getLogger("afterimage.unheard")
_UNHEARD.disabled = True


def look_at_broker(settings: Settings, relations: Sequence[Relation]) -> list[Finding]:
    """Look at the broker, the topics and transactions."""
    heard: list[KafkaError] = []
    quiet: dict[str, Any] = {"error_cb": heard.append, "logger": _UNHEARD}
    try:
        admin = admin_client(settings.kafka, "check", **quiet)
        metadata = cluster(settings.kafka, admin, heard, _TIMEOUT_S)
    except CdcError as error:
        return [of_error(error)]
    existing = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
    tables = [
        table_topic(topic_name(settings.pipeline, relation.schema, relation.name), settings.kafka.partitions)
        for relation in relations
    ]
    plans = [*pipeline_topics(settings.pipeline), *tables]
    limits = {plan.name: int(plan.config.get("max.message.bytes", 0)) for plan in plans}
    accepted = _request_bytes_max(admin, next(iter(metadata.brokers)))
    wrong = [
        *_existing(admin, [plan for plan in plans if plan.name in existing], existing, limits),
        *_missing(admin, [plan for plan in plans if plan.name not in existing], settings.kafka),
        *_requests(accepted, max(limits.values())),
        *_transactions(settings),
    ]
    there = sum(plan.name in existing for plan in plans)
    rows = size_text(min(limits[plan.name] for plan in tables or plans))
    request = "an unknown size" if accepted is None else size_text(accepted)
    return wrong or [
        ok(
            "KAFKA",
            f"Kafka has {len(metadata.brokers)} broker(s), {there} of {len(plans)} topics, "
            f"and takes rows of up to {rows} (requests of up to {request})",
        )
    ]


def _existing(
    admin: AdminClient, plans: Sequence[TopicPlan], partitions: dict[str, int], limits: dict[str, int]
) -> Iterator[Finding]:
    """Fills in what the topics take in place of what they were made to take."""
    if not plans:
        return
    resources = {plan.name: ConfigResource(ConfigResource.Type.TOPIC, plan.name) for plan in plans}
    settings = admin.describe_configs(list(resources.values()), request_timeout=_TIMEOUT_S)
    described = admin.describe_topics(
        TopicCollection(list(resources)), include_authorized_operations=True, request_timeout=_TIMEOUT_S
    )
    for plan in plans:
        if partitions[plan.name] != plan.partitions:
            yield critical(
                "PARTITIONS_CHANGED",
                f"topic {plan.name} has {partitions[plan.name]} partitions, the configuration says {plan.partitions}",
                f"set kafka.partitions to {partitions[plan.name]}: a key's partition must not change",
            )
        try:
            entries = settings[resources[plan.name]].result()
            allowed = described[plan.name].result().authorized_operations or _NEEDED
        except KafkaException as error:
            yield of_error(translate(error.args[0], f"looking at topic {plan.name}"))
            continue
        actual = {name: str(entry.value) for name, entry in entries.items()}
        limits[plan.name] = int(actual.get("max.message.bytes", limits[plan.name]))
        yield from _settings(plan, actual)
        if missing := [operation.name for operation in _NEEDED if operation not in allowed]:
            yield _forbidden(plan.name, " and ".join(missing))


def _forbidden(topic: str, operations: str) -> Finding:
    return critical(
        "KAFKA_UNAUTHORISED",
        f"Kafka does not allow {operations} on topic {topic}",
        f"kafka-acls.sh --add --allow-principal .. --operation All --topic {topic}, or all topics by their prefix",
    )


def _settings(plan: TopicPlan, actual: dict[str, str]) -> Iterator[Finding]:
    differing = {name: value for name, value in plan.config.items() if not _serves(name, actual.get(name), value)}
    if not differing:
        return
    wanted = ",".join(f"{name}={value}" for name, value in differing.items())
    remedy = f"kafka-configs.sh --bootstrap-server .. --alter --topic {plan.name} --add-config {wanted}"
    if "cleanup.policy" in differing:
        policy = actual.get("cleanup.policy")
        message = f"topic {plan.name} has cleanup.policy={policy}, so it would not stay what it must be"
        yield critical("TOPIC_SETTINGS", message, remedy)
    else:
        yield warning("TOPIC_SETTINGS", f"topic {plan.name} has other settings: {', '.join(differing)}", remedy)


def _serves(name: str, actual: str | None, wanted: str) -> bool:
    """Whoever has larger rows lets a topic take larger records."""
    if name == "max.message.bytes" and actual is not None:
        return int(actual) >= int(wanted)
    return actual == wanted


def _missing(admin: AdminClient, plans: Sequence[TopicPlan], kafka: Kafka) -> Iterator[Finding]:
    if not plans:
        return
    wanted = [
        NewTopic(plan.name, plan.partitions, kafka.replication_factor, config=dict(plan.config)) for plan in plans
    ]
    seen: set[str] = set()
    for topic, future in admin.create_topics(wanted, request_timeout=_TIMEOUT_S, validate_only=True).items():
        try:
            future.result()
        except KafkaException as error:
            finding = _refused(topic, error.args[0], kafka)
            if finding.message not in seen:  # the same for all topics, as a rule
                seen.add(finding.message)
                yield finding


def _refused(topic: str, error: KafkaError, kafka: Kafka) -> Finding:
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:  # and yet it was not listed
        return _forbidden(topic, "DESCRIBE")
    if error.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        return critical(
            "REPLICATION_FACTOR",
            f"Kafka has too few brokers for kafka.replication_factor {kafka.replication_factor}",
            "lower kafka.replication_factor, or add brokers",
        )
    if error.code() in (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION):
        return critical(
            "TOPIC_REFUSED",
            f"Kafka would not create the topics: {error.str()}",
            "change the broker's policy, or create the topics by hand with the settings of docs/FORMATS.md",
        )
    return of_error(translate(error, "creating the pipeline's topics"))


def _request_bytes_max(admin: AdminClient, broker: int) -> int | None:
    """The largest request that the broker takes; not everybody may read a broker's settings, and nobody needs to."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    try:
        entries = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
    except KafkaException:
        return None
    accepted = entries.get("socket.request.max.bytes")
    return int(accepted.value) if accepted is not None else None


def _requests(accepted: int | None, largest: int) -> Iterator[Finding]:
    if accepted is not None and accepted < largest + _REQUEST_OVERHEAD:
        yield warning(
            "REQUEST_SIZE",
            f"the broker takes requests of {accepted} bytes, the topics records of {largest}",
            f"set socket.request.max.bytes to {2 * largest} on the brokers, or keep rows smaller than that",
        )


def _transactions(settings: Settings) -> Iterator[Finding]:
    # An id of its own: the pipeline's would fence a capture that is running.
    trial = producer(
        settings.kafka,
        "check",
        **{"transactional.id": f"afterimage-{settings.pipeline}-check", "logger": _UNHEARD, "error_cb": _ignore},
    )
    try:
        with translated("trying a transaction"):
            trial.init_transactions(_TIMEOUT_S)
    except TransientError as error:
        yield critical(
            "KAFKA_TRANSACTIONS",
            f"Kafka cannot begin a transaction: {error.message}",
            "are transaction.state.log.replication.factor and .min.isr met by the brokers there are?",
        )
    except CdcError as error:
        yield of_error(error)


def _ignore(_: KafkaError) -> None:
    """The outcome is told by the call itself."""
