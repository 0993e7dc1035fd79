"""The whole stack as a user has it: up twice, found again, a crash reported, down without a trace, Ctrl-C halfway."""

from __future__ import annotations

import io
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
from rich.console import Console

from cdc.errors import OperatorError
from cdc.stack import daemon
from cdc.stack.embedded import Stack
from cdc.stack.postgres import Postgres
from cdc.stack.secret import password
from cdc.stack.valkey import Valkey
from tests.support.servers import sweep
from tests.support.wait import wait_until

NAMES = ["postgres", "kafka", "opensearch", "valkey"]
RSS_BYTES_MAX = 4 << 30


@pytest.fixture
def data(servers_folder):
    folder = servers_folder / secrets.token_hex(4)
    yield folder
    sweep(folder)


def of_folder(folder: Path) -> list[psutil.Process]:
    """Every process that works in this folder."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if (process.info["cwd"] or "").startswith(str(folder)):
            found.append(process)
    return found


def test_a_stack_from_up_to_down(data):
    screen = io.StringIO()
    console = Console(file=screen, width=100)
    stack = Stack(data, ports={}, short_lived=True)
    state = stack.up(console)
    assert [name for name in NAMES if f"{name} on {state.servers[name].address}" in screen.getvalue()] == NAMES

    assert stack.up() == state, "up twice is harmless"
    assert Stack(data).state() == state, "another program finds it"
    assert [health.state for health in stack.health()] == ["ready"] * 4
    assert sum(process.memory_info().rss for process in of_folder(data)) < RSS_BYTES_MAX

    secret_files = [endpoint.password_file for endpoint in state.servers.values() if endpoint.password_file]
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret_files] == [0o600] * 2
    written = b"".join(path.read_bytes() for path in (data / "stack.json", *data.glob("*/server.log")))
    assert not any(path.read_bytes().strip() in written for path in secret_files)
    commands = [" ".join(process.cmdline()) for process in of_folder(data)]
    assert not any(path.read_text().strip() in command for path in secret_files for command in commands)

    os.kill(state.valkey.process.pid, signal.SIGKILL)
    wait_until(lambda: not state.valkey.process.alive)
    [crashed] = [health for health in stack.health() if health.state != "ready"]
    assert (crashed.name, crashed.state) == ("valkey", "crashed")
    assert "Ready to accept connections" in (crashed.detail or "")
    again = stack.up()
    assert again.kafka == state.kafka, "what still ran was left alone"
    assert again.valkey.port == state.valkey.port

    assert sorted(Stack(data).down()) == sorted(NAMES), "any program may stop it"
    assert of_folder(data) == []
    assert stack.state() is None
    assert stack.down() == [], "down twice is harmless"


def test_data_survives_down_and_up_of_postgres(private_server):

    server = private_server(Postgres)
    conninfo = server.server.conninfo(server.endpoint.ports)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        server.stop()
    server.start()
    with psycopg.connect(conninfo) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


UP = """
import sys
from pathlib import Path
from cdc.stack.embedded import Stack
try:
    Stack(Path(sys.argv[1]), ports={}, short_lived=True).up()
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_ctrl_c_while_starting_stops_what_was_started(data):
    starting = subprocess.Popen([sys.executable, "-c", UP, str(data)], stdout=subprocess.DEVNULL)
    wait_until(lambda: len(list(data.glob("*/pid.json"))) >= 2, what="the first servers", timeout_s=60)
    starting.send_signal(signal.SIGINT)
    assert starting.wait(90) == 130
    assert of_folder(data) == []
    assert Stack(data).state() is None


def test_one_that_cannot_start_stops_the_others(data):
    (data / "kafka").mkdir(parents=True)
    (data / "kafka" / "server.properties").mkdir()
    with pytest.raises(OperatorError, match=r"kafka cannot be started: .*server\.properties"):
        Stack(data, ports={}, short_lived=True).up()
    assert of_folder(data) == []


def test_a_port_that_is_taken_is_left_to_its_owner(data):

    with socket.create_server(("127.0.0.1", 0)) as other:
        server = Valkey(data / "valkey", port=other.getsockname()[1])
        assert daemon.start(server).port != other.getsockname()[1]
    daemon.halt(server)


def test_a_password_outlives_a_restart(data):

    server = Valkey(data / "valkey", port=0)
    daemon.start(server)
    assert server.password_file is not None
    first = password(server.password_file)
    daemon.halt(server)
    daemon.start(server)
    assert password(server.password_file) == first
    assert daemon.health(server).state == "ready"
    daemon.halt(server)


def test_the_cluster_of_another_major_is_refused(private_server):

    server = private_server(Postgres)
    server.stop()
    with pytest.raises(OperatorError, match="is Postgres 17's, asked for is 16") as refused:
        daemon.start(Postgres(server.server.folder, major=16, port=0))
    assert refused.value.code == "SERVER_VERSION"
