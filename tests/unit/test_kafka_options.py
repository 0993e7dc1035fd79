"""Who capture connects to Kafka as, Spark connects as too."""

from __future__ import annotations

import pytest

from cdc.errors import ConfigError
from cdc.settings import Kafka
from jobs.kafka_options import java_properties, source_options


def test_only_committed_records_without_idle_waits():
    options = source_options(Kafka(bootstrap="a:1,b:2"))
    assert options["kafka.bootstrap.servers"] == "a:1,b:2"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["kafka.fetch.max.wait.ms"] == "10"
    assert options["failOnDataLoss"] == "true"


def test_a_login_becomes_jaas(tmp_path):
    authority = tmp_path / "ca.pem"
    authority.write_text("trusted")
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'p"\\w',
        "ssl.ca.location": str(authority),
        "ssl.endpoint.identification.algorithm": "none",
        "socket.keepalive.enable": "true",
    }
    assert java_properties(properties) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="p\\"\\\\w";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "trusted",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_a_client_certificate_goes_by_its_contents():
    key = "-----BEGIN PRIVATE KEY-----\n.."
    properties = {"ssl.certificate.pem": "chain", "ssl.key.pem": key, "ssl.key.password": "secret"}
    assert java_properties(properties) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "chain",
        "ssl.keystore.key": key,
        "ssl.key.password": "secret",
    }
    with pytest.raises(ConfigError, match="PKCS#8"):
        java_properties({**properties, "ssl.key.pem": "-----BEGIN EC PRIVATE KEY-----"})


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location: /no/such"):
        java_properties({"ssl.ca.location": "/no/such"})


@pytest.mark.parametrize(
    "name", ["ssl.keystore.location", "sasl.kerberos.principal", "enable.ssl.certificate.verification"]
)
def test_what_cannot_be_translated_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=name):
        java_properties({name: "x"})


def test_an_unknown_mechanism_is_refused():
    with pytest.raises(ConfigError, match="GSSAPI"):
        java_properties({"sasl.mechanism": "GSSAPI"})
