"""A server's life, with a small real one: port taken, crash, slow start, found again, cancelled."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from threading import Event

import pytest

from cdc.errors import OperatorError
from cdc.stack import daemon, ports
from cdc.stack.process import Command
from tests.support.wait import wait_until

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""


class Echo:
    """Listens on its port, if told nothing else."""

    name = "echo"
    user = None
    password_file = None

    def __init__(self, folder: Path, program: str = LISTEN, port: int = 0) -> None:
        self.folder = folder
        self.preferred = {"echo": port}
        self.program = program
        self.prepared: list[int] = []
        self.before_start = lambda port: None

    def artifacts(self):
        return ()

    def prepare(self, ports):
        self.prepared.append(ports["echo"])
        self.before_start(ports["echo"])
        return Command([sys.executable, "-c", self.program, str(ports["echo"])], self.folder)

    def why_not_ready(self, ports):
        try:
            socket.create_connection(("127.0.0.1", ports["echo"]), 5).close()
        except OSError as error:
            return type(error).__name__
        return None


@pytest.fixture
def echo(tmp_path):
    server = Echo(tmp_path / "echo")
    yield server
    daemon.halt(server)


def test_starts_once_and_is_found_again(echo):
    first = daemon.start(echo)
    assert daemon.start(echo) == first
    assert daemon.running(Echo(echo.folder)) == first
    assert daemon.health(echo).state == "ready"
    assert len(echo.prepared) == 1


def test_stops_and_says_whether_there_was_anything_to_stop(echo):
    daemon.start(echo)
    assert daemon.halt(echo)
    assert not daemon.halt(echo)
    assert daemon.health(echo).state == "stopped"


def test_takes_the_preferred_port_if_it_is_free(tmp_path):
    [port] = ports.choose({"any": 0}).values()
    server = Echo(tmp_path / "echo", port=port)
    assert daemon.start(server).port == port
    daemon.halt(server)


def test_takes_another_port_if_the_preferred_one_is_taken_and_remembers_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        server = Echo(tmp_path / "echo", port=taken)
        chosen = daemon.start(server).port
        assert chosen != taken
        daemon.halt(server)
    assert daemon.start(server).port == chosen
    daemon.halt(server)


def test_chooses_again_if_somebody_takes_the_port_in_between(echo):
    rivals: list[socket.socket] = []

    def take(port: int) -> None:
        if not rivals:
            rivals.append(socket.create_server(("127.0.0.1", port)))

    echo.before_start = take
    endpoint = daemon.start(echo)
    assert endpoint.port != echo.prepared[0]
    assert len(echo.prepared) == 2
    rivals[0].close()


def test_a_crash_at_start_is_reported_with_the_end_of_the_log(tmp_path):
    server = Echo(tmp_path / "echo", "print('no room for the log'); raise SystemExit(1)")
    with pytest.raises(OperatorError, match="echo stopped by itself; its log ends with:\nno room for the log") as crash:
        daemon.start(server)
    assert crash.value.code == "SERVER_CRASHED"
    assert str(server.folder / "server.log") in (crash.value.hint or "")
    assert daemon.health(server).state == "stopped"


def test_a_crash_later_is_reported_and_the_next_start_recovers(echo):
    process = daemon.start(echo).process
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not process.alive)
    health = daemon.health(echo)
    assert (health.state, health.detail) == ("crashed", "listening")
    assert daemon.running(echo) is None
    assert daemon.start(echo).process.pid != process.pid


def test_one_that_never_answers_is_stopped_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(daemon, "START_DEADLINE_S", 0.3)
    server = Echo(tmp_path / "echo", "import time; print('thinking', flush=True); time.sleep(600)")
    with pytest.raises(OperatorError, match="does not answer") as slow:
        daemon.start(server)
    assert slow.value.code == "SERVER_SLOW"
    assert daemon.running(server) is None


def test_starting_can_be_called_off(tmp_path):
    server = Echo(tmp_path / "echo", "import time; time.sleep(600)")
    cancelled = Event()
    cancelled.set()
    with pytest.raises(daemon.Cancelled):
        daemon.start(server, cancelled)
    assert daemon.running(server) is None


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "echo").write_text("in the way")
    with pytest.raises(OperatorError, match=r"echo cannot be started: .*echo"):
        daemon.start(Echo(tmp_path / "echo"))


def test_a_long_log_is_put_aside(echo, monkeypatch):
    monkeypatch.setattr(daemon, "LOG_BYTES_MAX", 5)
    daemon.start(echo)
    daemon.halt(echo)
    daemon.start(echo)
    assert (echo.folder / "server.log.old").read_text() == "listening\n"


def test_two_servers_never_get_the_same_port():
    chosen = [port for _ in range(50) for port in ports.choose({"a": 0, "b": 0}).values()]
    assert len(set(chosen)) == len(chosen)
