"""Kafka clients made from the configuration, and Kafka's errors translated into ours.

In: settings.Kafka. Out: configured confluent-kafka clients; every KafkaException becomes a CdcError here.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import stamina
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata

from cdc.changes import Record
from cdc.errors import CdcError, ConfigError, OperatorError, RecordError, TransientError
from cdc.log import get
from cdc.settings import Kafka
from cdc.tls import why_distrusted

_log = get(__name__)

_FIRST_LOOK_S: Final = 0.5

Client = TypeVar("Client", Consumer, Producer, AdminClient)

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
_LOGIN_REFUSED: Final = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
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
        **kafka.client_properties(),
    }


def _heard(error: KafkaError) -> None:
    """Said as soon as no broker answers; what waits for one gives up much later."""
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        _log.warning("no kafka broker answers", code="KAFKA_UNAVAILABLE", reason=error.name())
    else:
        _log.debug("kafka client reports", error=error.name())


def consumer(kafka: Kafka, purpose: str, **options: Any) -> Consumer:
    """A consumer that sees committed records only, assigned by hand."""
    reading = {
        "group.id": f"afterimage-{purpose}",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50,
        "check.crcs": True,
        # The default is below what a record may have.
        "receive.message.max.bytes": 1_200_000_000,
    }
    return _made(Consumer, {**client_config(kafka, purpose), **reading, **options}, kafka)


def admin(kafka: Kafka, purpose: str = "admin", **options: Any) -> AdminClient:
    """An admin client."""
    return _made(AdminClient, {**client_config(kafka, purpose), **options}, kafka)


def producer(kafka: Kafka, purpose: str, **options: Any) -> Producer:
    """A producer; transactional when the options say so."""
    return _made(Producer, {**client_config(kafka, purpose), "enable.idempotence": True, **options}, kafka)


def _made(kind: Callable[[dict[str, Any]], Client], config: dict[str, Any], kafka: Kafka) -> Client:
    try:
        return kind(config)
    except KafkaException as error:
        raise _unusable(error.args[0], kafka) from None


def _unusable(error: KafkaError, kafka: Kafka) -> ConfigError:
    """librdkafka refuses a property: it may quote the value, so what was configured as a secret is cut out."""
    text = error.str()
    for name, value in kafka.client_properties().items():
        if "password" in name or name in kafka.property_files or name.endswith(".pem"):
            text = text.replace(value, "..") if value else text
    return ConfigError(
        f"kafka.properties: {text}",
        "a file that is named there must be readable and in PEM; docs/SECURITY.md has an example",
        code="KAFKA_PROPERTIES",
    )


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn Kafka's exceptions into ours, saying what was being done."""
    try:
        yield
    except KafkaException as error:
        raise translate(error.args[0], doing) from error
    except BufferError as error:
        raise TransientError(f"{doing}: the producer's queue is full", "the broker is slow or away") from error


def extent(client: Consumer, topic: str, doing: str, wait_s: float, partition: int = 0) -> tuple[int, int]:
    """Where a partition begins and ends; one that was just made or has moved has no leader for a moment."""
    for attempt in stamina.retry_context(on=TransientError, timeout=wait_s):
        with attempt, translated(doing):
            return client.get_watermark_offsets(TopicPartition(topic, partition), timeout=wait_s)
    raise AssertionError("either it is told or the last attempt raises")


def assign_whole(client: Consumer, topic: str, doing: str, wait_s: float) -> None:
    """Read a topic of one partition from where it begins."""
    low, _ = extent(client, topic, doing, wait_s)
    with translated(doing):
        client.assign([TopicPartition(topic, 0, low)])


def refused_record(error: Any, record: Record) -> CdcError:
    """What became of one record: its table and its key's columns are named, never a value."""
    key = f"key ({_columns(record.key)}), sha256 of the key {sha256(record.key).hexdigest()[:16]}"
    what = f"a record of {len(record.value or b'')} bytes for {record.topic}, {key}"
    code = error.code() if isinstance(error, KafkaError) else None
    if code == KafkaError._MSG_TIMED_OUT:
        return TransientError(
            f"Kafka did not take {what}",
            "is Kafka up? a broker whose socket.request.max.bytes is smaller cuts the connection without a word",
            code="KAFKA_UNAVAILABLE",
        )
    return translate(error, f"producing {what}")


def _columns(key: bytes) -> str:
    try:
        return ", ".join(json.loads(key))
    except ValueError:
        return "unknown"


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
    return TransientError(
        f"{doing}: {text}",
        "is Kafka up and reachable at kafka.bootstrap, and does security.protocol fit its port?",
        code="KAFKA_UNAVAILABLE",
    )


def cluster(kafka: Kafka, client: AdminClient, heard: list[KafkaError], timeout_s: float) -> ClusterMetadata:
    """Brokers and topics as they are now; `heard` is where the client's `error_cb` puts what it is told."""
    deadline, patience_s = time.monotonic() + timeout_s, _FIRST_LOOK_S
    heard.clear()
    while True:
        try:
            return client.list_topics(timeout=patience_s)
        except KafkaException as error:
            client.poll(0)
            left_s = deadline - time.monotonic()
            if (refused := _refusal(kafka, heard)) is not None:
                raise refused from error
            if left_s <= 0:
                raise translate(error.args[0], f"connecting to Kafka at {kafka.bootstrap}") from error
            patience_s = min(2 * patience_s, max(left_s, _FIRST_LOOK_S))


def _refusal(kafka: Kafka, heard: Sequence[KafkaError]) -> CdcError | None:
    """Why a broker turned us away, which the call itself does not say: it only times out."""
    at = f"Kafka at {kafka.bootstrap}"
    if any(each.code() in _LOGIN_REFUSED for each in heard):
        return OperatorError(
            f"{at} refuses the login",
            "check sasl.mechanism, sasl.username and the password in kafka.properties or kafka.property_files",
            code="KAFKA_UNAUTHORISED",
        )
    # From TLS 1.3 on, a client's certificate is refused only after the handshake: then it is a transport error.
    of_tls = next((each for each in heard if each.code() == KafkaError._SSL or "SSL alert" in each.str()), None)
    return _of_tls(kafka, at, of_tls) if of_tls is not None else None


def _of_tls(kafka: Kafka, at: str, refusal: KafkaError) -> CdcError:
    host, _, port = kafka.bootstrap.split(",")[0].rpartition(":")
    authority = kafka.properties.get("ssl.ca.location")
    names = kafka.properties.get("ssl.endpoint.identification.algorithm") != "none"
    key = "kafka.properties.ssl.ca.location"
    path = Path(authority) if authority else None
    if host and port.isdigit() and (wrong := why_distrusted(host, int(port), path, key=key, names=names)):
        return wrong.error(at)
    if "alert" in refusal.str() or "certificate" in refusal.str():
        return OperatorError(
            f"{at} refuses our certificate",
            "give one that the broker's truststore knows: kafka.properties ssl.certificate.location, ssl.key.location",
            code="TLS_CLIENT",
        )
    return OperatorError(f"{at}: TLS fails", "does the broker's port speak TLS? check security.protocol", code="TLS")
