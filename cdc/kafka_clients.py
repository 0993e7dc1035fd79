"""Kafka clients made from the configuration, and Kafka's errors translated into ours.

In: settings.Kafka. Out: configured confluent-kafka clients; every KafkaException becomes a CdcError here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from cdc.errors import CdcError, OperatorError, RecordError, TransientError
from cdc.log import get
from cdc.settings import Kafka

_log = get(__name__)

TOPIC_MISSING: Final = "TOPIC_MISSING"
END_OF_PARTITION: Final = KafkaError._PARTITION_EOF

_FENCED: Final = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_UNAUTHORISED: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_TOO_LARGE: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_GONE: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def client_config(kafka: Kafka, purpose: str) -> dict[str, Any]:
    """What every client shares; librdkafka's own chatter goes to our log."""
    return {
        "bootstrap.servers": kafka.bootstrap,
        "client.id": f"afterimage-{purpose}@{socket.gethostname()}",
        "broker.address.family": "v4" if kafka.bootstrap.startswith("127.") else "any",
        "error_cb": _heard,
        "log_level": 0,
        "reconnect.backoff.max.ms": 2_000,
        **kafka.properties,
    }


def _heard(error: KafkaError) -> None:
    """Said as soon as no broker answers; what waits for one gives up much later."""
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        _log.warning("no kafka broker answers", code="KAFKA_UNAVAILABLE", reason=error.name())
    else:
        _log.debug("kafka client reports", error=error.name())


def consumer(kafka: Kafka, purpose: str, **options: Any) -> Consumer:
    """A consumer that sees committed records only, assigned by hand."""
    return Consumer(
        {
            **client_config(kafka, purpose),
            "group.id": f"afterimage-{purpose}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
            **options,
        }
    )


def admin(kafka: Kafka) -> AdminClient:
    """An admin client."""
    return AdminClient(client_config(kafka, "admin"))


def producer(kafka: Kafka, purpose: str, **options: Any) -> Producer:
    """A producer; transactional when the options say so."""
    return Producer({**client_config(kafka, purpose), "enable.idempotence": True, **options})


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn Kafka's exceptions into ours, saying what was being done."""
    try:
        yield
    except KafkaException as error:
        raise translate(error.args[0], doing) from error
    except BufferError as error:
        raise TransientError(f"{doing}: the producer's queue is full", "the broker is slow or away") from error


def translate(error: Any, doing: str) -> CdcError:
    """One place decides what a Kafka error means."""
    code = error.code() if isinstance(error, KafkaError) else None
    text = error.name() if isinstance(error, KafkaError) else str(error)
    if code in _FENCED:
        return OperatorError(
            f"{doing}: another capture of this pipeline has taken over",
            "let that one run, or stop it first; two pipelines need two names",
            code="FENCED",
        )
    if code in _UNAUTHORISED:
        return OperatorError(
            f"{doing}: Kafka refuses these credentials ({text})",
            "check kafka.properties (security.protocol, sasl.*) and the ACLs of topics, groups and transactional ids",
            code="KAFKA_UNAUTHORISED",
        )
    if code in _TOO_LARGE:
        return RecordError(
            f"{doing}: a record is larger than the broker takes",
            "raise message.max.bytes on the broker and max.message.bytes on the topic",
            code="RECORD_TOO_LARGE",
        )
    if code in _GONE:
        return OperatorError(
            f"{doing}: a topic of the pipeline is gone ({text})",
            "who deleted it? start over under a new pipeline name, or restore the topic",
            code=TOPIC_MISSING,
        )
    return TransientError(f"{doing}: {text}", "is Kafka up and reachable at kafka.bootstrap?", code="KAFKA_UNAVAILABLE")
