"""One YAML file, the environment over it, the embedded servers between; every mistake named, no secret ever shown."""

import os
import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr

from cdc.configuration import find_config, load_settings
from cdc.errors import ConfigError
from cdc.stack import state
from cdc.stack.process import Process
from cdc.stack.server import Endpoint
from cdc.stack.state import StackState

CANARY = "hunter2-canary"
BASE = """
pipeline: crm
source:
  host: db.example.com
  database: crm
  tables: ["public.*"]
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AFTERIMAGE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path):
    def written(text: str, name: str = "afterimage.yml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def refusal(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        load_settings(path)
    assert refused.value.exit_code == 2
    assert refused.value.hint
    shown = "".join(traceback.format_exception(refused.value))
    assert CANARY not in shown + refused.value.hint
    return refused.value


def test_a_small_file_is_enough(write):
    settings = load_settings(write(BASE))
    assert settings.source.host == "db.example.com"
    assert settings.source.tables == ("public.*",)
    assert (settings.slot, settings.publication) == ("afterimage_crm", "afterimage_crm")
    assert settings.delta_root == "data/delta/crm"


@pytest.mark.parametrize("name", ["config/afterimage.yml", "config/demo.yml", "config/compose.yml"])
def test_the_files_that_come_along_are_valid(name):
    assert load_settings(Path(name)).source.tables == ("public.*",)


# Where the file is


def test_the_usual_places_are_looked_at_in_order(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"afterimage\.yml or config/afterimage\.yml") as refused:
        find_config(None)
    assert refused.value.code == "NO_CONFIG"
    (tmp_path / "config").mkdir()
    write(BASE, "config/afterimage.yml")
    assert find_config(None) == Path("config/afterimage.yml")
    write(BASE)
    assert find_config(None) == Path("afterimage.yml")


def test_a_named_file_that_is_not_there(tmp_path):
    error = refusal(tmp_path / "absent.yml")
    assert "absent.yml is not there" in error.message
    assert error.code == "NO_CONFIG"


# What is not YAML, or not ours


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pipeline: crm\nsource: [", "afterimage.yml:2:10: not YAML: expected the node content, but found"),
        ("pipeline: crm\n  source: x", "afterimage.yml:2:9: not YAML: mapping values are not allowed"),
        ("pipeline: crm\n\tsource: x", "afterimage.yml:2:1: not YAML: found character"),
        (f"password: *{CANARY}", "afterimage.yml:1:11: not YAML: found undefined alias .."),
        (f"password: !{CANARY} x", "afterimage.yml:1:11: not YAML: could not determine a constructor for the tag .."),
        ("a: 1\nb: 2\na: 3", "afterimage.yml:3:1: not YAML: a stands here and in line 1"),
        ("source:\n  host: a\n  host: b", "afterimage.yml:3:3: not YAML: host stands here and in line 2"),
        ("x: \x00", "afterimage.yml: not YAML: it holds characters that YAML does not allow"),
        ("", "the file must hold keys"),
        ("- a", "the file must hold keys"),
        (CANARY, "the file must hold keys"),
        ("yes: 1", "the file must hold keys"),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_line(write, text, said):
    assert said in refusal(write(text)).message


def test_a_file_in_another_encoding(tmp_path):
    (tmp_path / "a.yml").write_bytes("pipeline: Größe".encode("utf-16"))
    assert refusal(tmp_path / "a.yml").message.endswith("a.yml is not UTF-8")


def test_merge_keys_and_a_byte_order_mark_are_fine(write):
    file = write("\ufeffpipeline: crm\nsource: {<<: {host: h, database: d}, tables: [public.a], host: own}")
    assert load_settings(file).source.host == "own"


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (BASE + "kafak: {}", "afterimage.yml:7: kafak: unknown key", "did you mean kafka?"),
        (BASE + "  hots: x", "afterimage.yml:7: source.hots: unknown key", "did you mean host?"),
        (BASE + "  read:\n    user: r\n    pasword: x", "afterimage.yml:9: source.read.pasword: ", "password?"),
        (BASE + "  admin: {user: r, zzz: x}", "afterimage.yml:7: source.admin.zzz: ", "known keys: password, "),
        (BASE + "_env_file: x", "afterimage.yml:7: _env_file: unknown key", "remove it"),
        (BASE + "source.host: x", "afterimage.yml:7: source.host: unknown key", "source?"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(write, text, said, hint):
    error = refusal(write(text))
    assert said in error.message
    assert hint in (error.hint or "")
    assert error.code == "CONFIG"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BASE + "  port: five", "afterimage.yml:7: source.port: Input should be a valid integer"),
        (BASE + "  sslmode: maybe", "afterimage.yml:7: source.sslmode: Input should be 'disable', 'prefer'"),
        (BASE + "kafka: {partitions: 0}", "afterimage.yml:7: kafka.partitions: Input should be greater than"),
        (BASE + "kafka: 9092", "afterimage.yml:7: kafka: Input should be a valid dictionary"),
        (BASE + "capture: {1: 2}", "afterimage.yml:7: capture.1"),
        (BASE.replace("crm\nsource", "CRM\nsource"), "afterimage.yml:2: pipeline: String should match pattern"),
        (BASE.replace('["public.*"]', "[]"), "afterimage.yml:6: source.tables: Tuple should have at least 1 item"),
        (BASE.replace("  database: crm\n", ""), "afterimage.yml:3: source.database: is missing"),
        ("pipeline: crm", "afterimage.yml: source.database: is missing; "),
        (BASE + "  admin: {password: x}", "afterimage.yml:7: source.admin.user: is missing"),
        (BASE + f"  read: {{user: r, password: [{CANARY}]}}", "source.read.password: Input should be a valid string"),
        (
            BASE + f"  read: {{user: r, password: {{x: {CANARY}}}}}",
            "source.read.password: Input should be a valid string",
        ),
        (BASE + f"kafka: {{properties: {{sasl.password: [{CANARY}]}}}}", "kafka.properties.sasl.password: Input"),
    ],
)
def test_a_wrong_value_is_named_by_its_key_and_not_shown(write, text, said):
    assert said in refusal(write(text)).message


def test_every_mistake_is_named_at_once(write):
    error = refusal(write(BASE + "  port: x\nkafak: {}\nviewz: y"))
    assert [part.split(":")[-2].strip() for part in error.message.split("; ")] == ["source.port", "kafak", "viewz"]


def test_two_equal_roles_are_refused(write):
    error = refusal(write(BASE + "  stream: {user: both}\n  read: {user: both}"))
    assert error.message.endswith(
        "source.stream and source.read must be two roles: REPLICATION reads the whole cluster"
    )
    assert "Value error" not in error.message


# The environment


def test_the_environment_goes_before_the_file(write, monkeypatch):
    monkeypatch.setenv("AFTERIMAGE_SOURCE__HOST", "other")
    monkeypatch.setenv("AFTERIMAGE_SOURCE__PORT", "6432")
    monkeypatch.setenv("AFTERIMAGE_SOURCE__TABLES", '["a.b", "c.d"]')
    monkeypatch.setenv("AFTERIMAGE_KAFKA__PROPERTIES", f'{{"sasl.password": "{CANARY}"}}')
    settings = load_settings(write(BASE + "kafka: {properties: {security.protocol: SASL_SSL}}"))
    assert (settings.source.host, settings.source.port) == ("other", 6432)
    assert settings.source.tables == ("a.b", "c.d")
    assert settings.source.database == "crm"
    assert settings.kafka.properties == {"security.protocol": "SASL_SSL", "sasl.password": CANARY}


def test_a_password_of_the_environment_replaces_the_files_password_file(write, tmp_path, monkeypatch):
    (tmp_path / "old").write_text("old")
    text = BASE + f"  read: {{user: r, password_file: {tmp_path}/old}}\n  stream: {{user: s, password: inline}}"
    monkeypatch.setenv("AFTERIMAGE_SOURCE__READ__PASSWORD", "12345")
    monkeypatch.setenv("AFTERIMAGE_SOURCE__STREAM__PASSWORD_FILE", f"{tmp_path}/old")
    source = load_settings(write(text)).source
    assert (source.read.user, source.read.secret(), source.stream.secret()) == ("r", "12345", "old")
    assert source.stream.password is None


@pytest.mark.parametrize(
    ("name", "value", "said", "hint"),
    [
        ("AFTERIMAGE_SORCE__HOST", CANARY, "AFTERIMAGE_SORCE__HOST: there is no section sorce", "did you mean source?"),
        ("AFTERIMAGE_SOURCE__HOTS", CANARY, "AFTERIMAGE_SOURCE__HOTS: unknown key", "did you mean host?"),
        ("AFTERIMAGE_SOURCE__PORT", CANARY, "AFTERIMAGE_SOURCE__PORT: Input should be a valid integer", "CONFIG"),
        ("AFTERIMAGE_SOURCE__TABLES", CANARY, "AFTERIMAGE_SOURCE__TABLES: not JSON", '["public.*"]'),
        ("AFTERIMAGE_KAFKA", CANARY, "AFTERIMAGE_KAFKA: not JSON", '["public.*"]'),
        ("AFTERIMAGE_SOURCE__READ", f'{{"pasword": "{CANARY}"}}', "source.read.pasword: unknown key", "password?"),
    ],
)
def test_a_wrong_variable_is_named_and_not_shown(write, monkeypatch, name, value, said, hint):
    monkeypatch.setenv(name, value)
    error = refusal(write(BASE))
    assert said in error.message
    assert hint in (error.hint or "")


def test_variables_of_others_are_left_alone(write, monkeypatch):
    # Kubernetes makes such for a service called afterimage; the others are ours, but no keys.
    for name in ("AFTERIMAGE_PORT", "AFTERIMAGE_SERVICE_HOST", "AFTERIMAGE_CACHE_DIR", "AFTERIMAGE_JAVA"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:80")
    assert load_settings(write(BASE)).cache.url == "redis://127.0.0.1:6379/0"


# Secrets


def test_no_secret_is_in_a_repr_or_a_dump(write, monkeypatch):
    monkeypatch.setenv("AFTERIMAGE_SEARCH__PASSWORD", CANARY)
    text = f"""  read: {{user: r, password: {CANARY}}}
kafka: {{properties: {{sasl.password: {CANARY}}}}}
cache: {{url: "redis://:{CANARY}@h:1/0", password: {CANARY}}}
delta: {{storage_options: {{AWS_SECRET_ACCESS_KEY: {CANARY}}}}}
apply: {{spark: {{spark.hadoop.fs.s3a.secret.key: {CANARY}}}}}
"""
    settings = load_settings(write(BASE + text))
    assert settings.search.password == SecretStr(CANARY)
    assert settings.source.read.secret() == CANARY
    assert CANARY not in repr(settings) + str(settings)


def test_a_password_alone_is_enough_for_the_two_roles(write, monkeypatch):
    monkeypatch.setenv("AFTERIMAGE_SOURCE__STREAM__PASSWORD", "one")
    source = load_settings(write(BASE + "  read: {password: two}")).source
    assert (source.stream.user, source.stream.secret()) == ("afterimage_stream", "one")
    assert (source.read.user, source.read.secret()) == ("afterimage_read", "two")


def test_a_rotated_password_file_is_seen(write, tmp_path):
    (tmp_path / "secret").write_text("first\n")
    settings = load_settings(write(BASE + f"  read: {{user: r, password_file: {tmp_path}/secret}}"))
    assert settings.source.read.secret() == "first"
    (tmp_path / "secret").write_text("second\n")
    assert settings.source.read.secret() == "second"


# The embedded servers


def running_servers(data: Path) -> StackState:
    def endpoint(name: str, port: int, user: str | None = None) -> Endpoint:
        process = Process(pid=1, started="x", program="/x", cwd=data, mark="m")
        password_file = data / name / "password"
        return Endpoint(
            name=name,
            port=port,
            ports={name: port},
            user=user,
            password_file=password_file,
            process=process,
            log=data / "log",
        )

    servers = [endpoint("postgres", 1001, "postgres"), endpoint("kafka", 1002), endpoint("opensearch", 1003)]
    return StackState(servers={server.name: server for server in [*servers, endpoint("valkey", 1004)]})


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_addresses_come_from_the_servers_that_run(write, data, monkeypatch):
    state.write(data / "stack.json", running_servers(data))
    file = write(BASE + f"embedded: true\ndata: {data}\nsearch: {{gc_deletes: 2h}}")
    settings = load_settings(file)
    assert (settings.source.host, settings.source.port) == ("127.0.0.1", 1001)
    assert settings.kafka.bootstrap == "127.0.0.1:1002"
    assert (settings.search.url, settings.search.gc_deletes) == ("http://127.0.0.1:1003", "2h")
    assert settings.cache.url == "redis://127.0.0.1:1004/0"
    assert settings.cache.password_file == data / "valkey/password"
    assert settings.source.admin is not None
    assert settings.source.read.password_file == data / "secrets/read"
    monkeypatch.setenv("AFTERIMAGE_SOURCE__PORT", "7")
    monkeypatch.setenv("AFTERIMAGE_SOURCE__READ__PASSWORD", "mine")
    source = load_settings(file).source
    assert (source.host, source.port, source.read.secret()) == ("127.0.0.1", 7, "mine")


def test_without_running_servers_the_preferred_ports_stand(write, data):
    settings = load_settings(write(BASE + f"embedded: true\ndata: {data}"))
    assert settings.source.host == "db.example.com"
    assert settings.source.stream.password_file == data / "secrets/stream"


def test_the_environment_says_where_the_servers_are(write, data, monkeypatch):
    state.write(data / "stack.json", running_servers(data))
    monkeypatch.setenv("AFTERIMAGE_EMBEDDED", "true")
    monkeypatch.setenv("AFTERIMAGE_DATA", str(data))
    assert load_settings(write(BASE)).kafka.bootstrap == "127.0.0.1:1002"


def test_a_note_of_servers_is_not_read_when_they_are_not_ours(write, data):
    (data / "stack.json").write_text("damaged")
    assert load_settings(write(BASE + f"data: {data}")).source.host == "db.example.com"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"servers": {}}', '{"endpoints": {}}', '{"servers": {"postgres": {"port": 1}}}']
)
def test_a_note_of_another_version_is_refused_with_the_remedy(write, data, text):
    (data / "stack.json").write_text(text)
    error = refusal(write(BASE + f"embedded: true\ndata: {data}"))
    assert error.code == "STACK_STATE"
    assert f"rm {data}/stack.json" in (error.hint or "")


def test_a_note_that_cannot_be_read_is_refused(write, data):
    (data / "stack.json").mkdir()
    error = refusal(write(BASE + f"embedded: true\ndata: {data}"))
    assert error.code == "STACK_STATE"
    assert "Is a directory" in error.message
