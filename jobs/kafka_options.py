"""librdkafka's settings in the words of the Java client that Spark reads Kafka with.

In: settings.Kafka. Out: options of Spark's Kafka source. Keeps true: whoever capture connects as, apply connects as
too; a setting that decides about identity or encryption and has no translation is refused, not dropped.
"""

from __future__ import annotations

from typing import Final

from cdc.errors import ConfigError
from cdc.settings import Kafka

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SAME: Final = frozenset(
    {"security.protocol", "ssl.endpoint.identification.algorithm", "ssl.cipher.suites", "client.rack"}
)
_HANDLED: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location"})
PATIENCE: Final = {
    "kafka.default.api.timeout.ms": "20000",
    "kafka.request.timeout.ms": "15000",
    "kafkaConsumer.pollTimeoutMs": "20000",
    "fetchOffset.numRetries": "1",
}
"""How long a broker that does not answer is waited for; apply tries again after that."""

_DECISIVE: Final = ("sasl.", "ssl.")


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
        **{f"kafka.{name}": value for name, value in java_properties(kafka.properties).items()},
    }


def java_properties(properties: dict[str, str]) -> dict[str, str]:
    """`kafka.properties` of the configuration, translated."""
    for name in properties:
        if name.startswith(_DECISIVE) and name not in _SAME | _HANDLED:
            raise ConfigError(
                f"kafka.properties.{name} has no counterpart in Spark's Kafka client",
                "supported are security.protocol, sasl.mechanism, sasl.username, sasl.password, ssl.ca.location; "
                "give others in apply.spark as spark.kafka.clusters settings",
            )
    translated = {name: value for name, value in properties.items() if name in _SAME}
    if authority := properties.get("ssl.ca.location"):
        translated |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return translated | _login(properties)


def _login(properties: dict[str, str]) -> dict[str, str]:
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
