"""The same servers from images, where AFTERIMAGE_TEST_DOCKER=1, Docker and testcontainers are there.

In: a Server of the embedded stack and ports. Out: an Endpoint that answers the same way, so the same tests run against
it. Images are docker-compose.yml's. A test that kills its server always has an embedded one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from cdc.stack import kafka, ports, postgres, process
from cdc.stack.secret import password
from cdc.stack.server import Endpoint, Server
from tests.support.wait import wait_until

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
START_DEADLINE_S = 180
NOT_FOR_IMAGES = {"listen_addresses", "unix_socket_directories"}


@dataclass(frozen=True)
class Container:
    """What to run."""

    image: str
    environment: Mapping[str, str]
    command: Sequence[str] = ()


def wanted() -> bool:
    """Whether this session was asked to use containers."""
    return os.environ.get("AFTERIMAGE_TEST_DOCKER") == "1"


def running(server: Server) -> Iterator[Endpoint]:
    """Start the image, wait for the server's own probe, stop it afterwards."""
    docker = importlib.import_module("testcontainers.core.container")
    server.folder.mkdir(parents=True, exist_ok=True)
    chosen = ports.choose(dict.fromkeys(server.preferred, 0))
    plan = describe(server, chosen)
    container = docker.DockerContainer(plan.image).with_command(list(plan.command))
    for name, value in plan.environment.items():
        container.with_env(name, value)
    for port in chosen.values():
        container.with_bind_ports(port, port)
    with container:
        wait_until(lambda: server.why_not_ready(chosen) is None, timeout_s=START_DEADLINE_S, what=server.name)
        yield endpoint(server, chosen)


def describe(server: Server, chosen: Mapping[str, int]) -> Container:
    """The image with the embedded server's settings; it listens inside on the port that it has outside."""
    image = yaml.safe_load(COMPOSE.read_text())["services"][server.name]["image"]
    secret = password(server.password_file) if server.password_file else ""
    match server.name:
        case "postgres":
            settings = {**postgres.SETTINGS, "port": str(chosen["postgres"]), "max_replication_slots": "60"}
            kept = {name: value for name, value in settings.items() if name not in NOT_FOR_IMAGES}
            flags = [word for name, value in kept.items() for word in ("-c", f"{name}={value}")]
            initdb = "--encoding=UTF8 --locale=C"
            return Container(image, {"POSTGRES_PASSWORD": secret, "POSTGRES_INITDB_ARGS": initdb}, flags)
        case "kafka":
            settings = {**kafka.SETTINGS, **_listeners(chosen)}
            return Container(image, {f"KAFKA_{name.upper().replace('.', '_')}": v for name, v in settings.items()})
        case "opensearch":
            environment = {
                "discovery.type": "single-node",
                "http.port": str(chosen["opensearch"]),
                "transport.port": str(chosen["transport"]),
                "action.auto_create_index": "false",
                "DISABLE_INSTALL_DEMO_CONFIG": "true",
                "DISABLE_SECURITY_PLUGIN": "true",
                "OPENSEARCH_JAVA_OPTS": "-Xms512m -Xmx512m",
            }
            return Container(image, environment)
        case _:
            flags = ["--requirepass", secret, "--port", str(chosen["valkey"])]
            return Container(image, {}, [*flags, "--appendonly", "yes", "--maxmemory-policy", "noeviction"])


def endpoint(server: Server, chosen: Mapping[str, int]) -> Endpoint:
    """As the embedded stack would have it; the process is ours, since the container's is the engine's."""
    ours = process.Process(
        pid=os.getpid(), started=process.start_time(os.getpid()) or "", program="", cwd=Path("/"), mark=""
    )
    return Endpoint(
        name=server.name,
        port=next(iter(chosen.values())),
        ports=dict(chosen),
        user=server.user,
        password_file=server.password_file,
        process=ours,
        log=server.folder / "server.log",
    )


def _listeners(chosen: Mapping[str, int]) -> dict[str, str]:
    broker, controller = chosen["kafka"], chosen["controller"]
    return {
        "listeners": f"PLAINTEXT://:{broker},CONTROLLER://:{controller}",
        "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{broker}",
        "controller.quorum.voters": f"1@localhost:{controller}",
    }
