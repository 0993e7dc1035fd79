"""librdkafka's settings in the words of the Java client that Spark reads Kafka with.

In: settings.Kafka. Out: options of Spark's Kafka source. Keeps true: whoever capture connects as, apply connects as
too; a setting that decides about identity or encryption and has no translation is refused, not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdc.errors import ConfigError
from cdc.settings import Kafka

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SAME: Final = frozenset({"security.protocol", "client.rack"})
_LOGIN: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})
_NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
_STORES: Final = frozenset(
    {
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
    }
)
PATIENCE: Final = {
    "kafka.default.api.timeout.ms": "20000",
    "kafka.request.timeout.ms": "15000",
    "kafkaConsumer.pollTimeoutMs": "20000",
    "fetchOffset.numRetries": "1",
}
"""How long a broker that does not answer is waited for; apply tries again after that."""

_DECISIVE: Final = ("sasl.", "ssl.", "enable.ssl.", "enable.sasl.")
_KEY_BEGINNINGS: Final = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def source_options(kafka: Kafka) -> dict[str, str]:
    """Options for `spark.read.format("kafka")`: as whom to connect, committed records only, no idle waits."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.isolation.level": "read_committed",
        # By default a fetch that finds little waits half a second, in every task.
        "kafka.fetch.max.wait.ms": "10",
        **PATIENCE,
        "groupIdPrefix": "afterimage-apply",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        **{f"kafka.{name}": value for name, value in java_properties(kafka.client_properties()).items()},
    }


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """`kafka.properties` of the configuration, translated."""
    known = _SAME | _LOGIN | _STORES | {_NAME_CHECK}
    for name in properties:
        if name.startswith(_DECISIVE) and name not in known:
            raise ConfigError(
                f"kafka.properties.{name} has no counterpart in Spark's Kafka client",
                f"supported are {', '.join(sorted(known - {'client.rack', 'sasl.mechanisms'}))}",
            )
    translated = {name: value for name, value in properties.items() if name in _SAME}
    if algorithm := properties.get(_NAME_CHECK):
        translated[_NAME_CHECK] = "" if algorithm == "none" else algorithm
    return translated | _authority(properties) | _client_certificate(properties) | _login(properties)


def _authority(properties: Mapping[str, str]) -> dict[str, str]:
    """By its contents, so that executors on other machines need no file."""
    text = _pem(properties, "ssl.ca")
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text} if text else {}


def _client_certificate(properties: Mapping[str, str]) -> dict[str, str]:
    chain, key = _pem(properties, "ssl.certificate"), _pem(properties, "ssl.key")
    if chain is None or key is None:
        return {}
    if not any(beginning in key for beginning in _KEY_BEGINNINGS):
        raise ConfigError(
            "kafka.properties.ssl.key.location: Spark's Kafka client reads keys in PKCS#8 only",
            "convert it: openssl pkcs8 -topk8 -nocrypt -in old.key -out new.key",
        )
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    password = properties.get("ssl.key.password")
    return {**stores, "ssl.key.password": password} if password else stores


def _pem(properties: Mapping[str, str], prefix: str) -> str | None:
    if location := properties.get(f"{prefix}.location"):
        try:
            return Path(location).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"kafka.properties.{prefix}.location: {location}: {getattr(error, 'strerror', 'not text')}",
                "name one readable PEM file",
                code="KAFKA_PROPERTIES",
            ) from error
    return properties.get(f"{prefix}.pem")


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if mechanism is None:
        return {}
    if mechanism not in _LOGIN_MODULES:
        raise ConfigError(
            f"kafka.properties.sasl.mechanism {mechanism} is not supported by apply",
            f"use one of {', '.join(_LOGIN_MODULES)}",
        )
    user, password = (_jaas(properties.get(f"sasl.{name}", "")) for name in ("username", "password"))
    jaas = f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def _jaas(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
