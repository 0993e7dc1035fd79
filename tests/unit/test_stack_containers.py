"""Fixtures from images: the same versions and settings as the embedded servers, the same way to reach them."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType

import pytest

from cdc.stack import ports
from cdc.stack.kafka import Kafka
from cdc.stack.locks import load
from cdc.stack.opensearch import OpenSearch
from cdc.stack.postgres import DEFAULT_MAJOR, Postgres
from cdc.stack.secret import password
from cdc.stack.valkey import Valkey
from tests.support import containers


def version_of(lock: str, artifact: str) -> str:
    return next(found.version for found in load(lock).artifacts if found.parts[1] == artifact)


def test_images_are_of_the_embedded_versions(tmp_path):
    chosen = {"postgres": 1, "kafka": 2, "controller": 3, "opensearch": 4, "transport": 5, "valkey": 6}
    images = {
        kind.name: containers.describe(kind(tmp_path / kind.name), chosen).image
        for kind in (Postgres, Kafka, OpenSearch, Valkey)
    }
    assert images["postgres"].endswith(f":{DEFAULT_MAJOR}")
    assert images["kafka"].endswith(f":{version_of('kafka', 'kafka_2.13')}")
    assert images["opensearch"].endswith(f":{version_of('opensearch', 'opensearch')}")
    assert "valkey" in images["valkey"]


def test_settings_go_along(tmp_path):
    server = Postgres(tmp_path)
    plan = containers.describe(server, {"postgres": 4711})
    assert server.password_file is not None
    assert plan.environment["POSTGRES_PASSWORD"] == password(server.password_file)
    assert {"wal_level=logical", "port=4711", "log_error_verbosity=terse"} <= set(plan.command)
    plan = containers.describe(Kafka(tmp_path), {"kafka": 1, "controller": 2})
    assert plan.environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert plan.environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:1"


def test_a_container_is_waited_for_and_stopped(tmp_path, monkeypatch):
    seen = []

    class DockerContainer(contextlib.AbstractContextManager["DockerContainer"]):
        def __init__(self, image):
            seen.append(image)

        def with_command(self, command):
            return self

        def with_env(self, name, value):
            return self

        def with_bind_ports(self, inside, outside):
            assert inside == outside
            return self

        def __exit__(self, *_):
            seen.append("stopped")

    module = ModuleType("testcontainers.core.container")
    module.DockerContainer = DockerContainer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", module)
    server = Valkey(tmp_path / "valkey")
    answers = ["ConnectionError", None]
    monkeypatch.setattr(server, "why_not_ready", lambda _: answers.pop(0), raising=True)
    [endpoint] = containers.running(server)
    assert endpoint.host == ports.HOST
    assert endpoint.password == password(tmp_path / "valkey" / "password")
    assert seen[1:] == ["stopped"]


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("0", False), ("", False)])
def test_containers_are_used_only_when_asked_for(monkeypatch, value, wanted):
    monkeypatch.setenv("AFTERIMAGE_TEST_DOCKER", value)
    assert containers.wanted() is wanted
