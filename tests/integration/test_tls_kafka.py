"""Kafka over TLS and SASL: every way in, for librdkafka and for Spark, and one error for each way that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.changes import Record
from cdc.check.broker import look_at_broker
from cdc.errors import CdcError, ConfigError
from cdc.kafka_clients import consumer
from cdc.publisher import Publisher
from cdc.settings import Kafka, Settings, Source
from cdc.stack import daemon
from cdc.stack.server import Endpoint
from cdc.topics import Topics, pipeline_topics, table_topic
from jobs.kafka_options import source_options
from tests.support.certificates import DAY, Authority
from tests.support.secured import HOST_NAME, USER, SecuredKafka, set_scram_password
from tests.support.wait import wait_until

PASSWORDS = {"sasl_ssl": "canary-'\"\\ é", "sasl_plaintext": "canary-plain"}
WAYS = ("sasl_ssl", "ssl", "sasl_plaintext")
MORE_PATIENCE = {"socket.timeout.ms": "20000"}


class Guarded:
    """The broker, and what a client of each listener must be told."""

    def __init__(self, endpoint: Endpoint, authority: Authority, folder: Path) -> None:
        self.endpoint = endpoint
        self.authority = authority
        self.files = {listener: folder / f"{listener}.secret" for listener in PASSWORDS}
        for listener, file in self.files.items():
            file.write_text(PASSWORDS[listener] + "\n")
        trusted = {"ssl.ca.location": str(authority.certificate), **MORE_PATIENCE}
        own = authority.issue(USER)
        shown = {"ssl.certificate.location": str(own.certificate), "ssl.key.location": str(own.key)}
        login = {"sasl.username": USER}
        self.properties: dict[str, dict[str, str]] = {
            "sasl_ssl": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **login, **trusted},
            "ssl": {"security.protocol": "SSL", **shown, **trusted},
            "sasl_plaintext": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **login},
            "expired": {"security.protocol": "SSL", **trusted},
        }

    def kafka(self, listener: str, host: str = HOST_NAME, **changes: str | None) -> Kafka:
        names = {name.replace("__", "."): value for name, value in changes.items()}
        properties = {
            name: value for name, value in {**self.properties[listener], **names}.items() if value is not None
        }
        own = listener in self.files and "sasl.password" not in properties
        files = {"sasl.password": self.files[listener]} if own else {}
        at = f"{host}:{self.endpoint.ports[listener]}"
        return Kafka(bootstrap=at, partitions=1, properties=properties, property_files=files)


@pytest.fixture(scope="module")
def guarded(servers_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder / "ca")
    server = SecuredKafka(
        servers_folder / "guarded",
        authority=authority,
        password=PASSWORDS["sasl_plaintext"],
        port=0,
        short_lived=True,
    )
    endpoint = daemon.start(server)
    set_scram_password(endpoint.address, PASSWORDS["sasl_ssl"])
    made = Guarded(endpoint, authority, folder)
    wait_until(lambda: _lets_in(made.kafka("sasl_ssl")), what="the broker to know its user", timeout_s=60)
    yield made
    daemon.halt(server)


def _lets_in(kafka: Kafka) -> bool:
    try:
        return bool(Topics(kafka).existing()) or True
    except CdcError:
        return False


def refused(kafka: Kafka) -> CdcError:
    """What capture and apply meet first, which is also what `check` finds."""
    with pytest.raises(CdcError) as raised:
        Topics(kafka).existing()
    error = raised.value
    source = Source(database="none", tables=("public.*",))
    [found] = look_at_broker(Settings(pipeline="none", source=source, kafka=kafka), [])
    assert found.code == error.code
    assert error.hint
    assert "canary" not in f"{error.message}{error.hint}{error.__cause__}{found}"
    return error


@pytest.mark.parametrize("listener", WAYS)
def test_every_way_in_reads_and_writes(guarded: Guarded, listener: str, pipeline_name: str) -> None:
    kafka = guarded.kafka(listener)
    Topics(kafka).ensure([*pipeline_topics(pipeline_name), table_topic(f"{pipeline_name}.t", 1)])
    publisher = Publisher(kafka, pipeline_name, 30)
    try:
        publisher.start()
        publisher.produce([Record(f"{pipeline_name}.t", 0, b"k", b"v")])
        assert publisher.seal() == {f"{pipeline_name}.t": {0: 1}}
    finally:
        publisher.close()
    reader = consumer(kafka, "test")
    assert f"{pipeline_name}.t" in reader.list_topics(timeout=20).topics
    reader.close()
    assert "canary" not in repr(kafka)


def test_spark_gets_in_the_same_ways(guarded: Guarded, spark: SparkSession, pipeline_name: str) -> None:
    topic = f"{pipeline_name}.t"
    Topics(guarded.kafka("ssl")).ensure([table_topic(topic, 1)])
    for listener in WAYS:
        options = source_options(guarded.kafka(listener))
        assert spark.read.format("kafka").options(**options).option("subscribe", topic).load().count() == 0


def test_each_refusal_has_its_name(guarded: Guarded, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "other", "Another authority")
    unknown = stranger.issue(USER)
    nobodys = {"ssl__certificate__location": str(unknown.certificate), "ssl__key__location": str(unknown.key)}
    over = guarded.authority.issue(USER, lasts=-DAY)
    expired = {"ssl__certificate__location": str(over.certificate), "ssl__key__location": str(over.key)}
    nothing: dict[str, Any] = dict.fromkeys(nobodys)
    cases = [
        ("KAFKA_UNAUTHORISED", guarded.kafka("sasl_ssl", sasl__password="canary-wrong")),
        ("KAFKA_UNAUTHORISED", guarded.kafka("sasl_plaintext", sasl__username="nobody")),
        ("TLS_UNTRUSTED", guarded.kafka("sasl_ssl", ssl__ca__location=str(stranger.certificate))),
        ("TLS_HOST_NAME", guarded.kafka("sasl_ssl", host="127.0.0.1")),
        ("TLS_EXPIRED", guarded.kafka("expired")),
        ("TLS_CLIENT", guarded.kafka("ssl", **nothing)),
        ("TLS_CLIENT", guarded.kafka("ssl", **nobodys)),
        ("TLS_CLIENT", guarded.kafka("ssl", **expired)),
        ("KAFKA_PROPERTIES", guarded.kafka("ssl", ssl__ca__location=str(tmp_path / "absent.pem"))),
    ]
    for code, kafka in cases:
        error = refused(kafka)
        assert error.code == code, error.message
        assert isinstance(error, ConfigError) == (code == "KAFKA_PROPERTIES")
