"""Clients and apply talk through a real broker; one process at a time is *the* apply process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cdc.changes import Trouble
from cdc.errors import OperatorError, TransientError
from cdc.settings import Kafka, Settings, Source
from cdc.stack.server import Endpoint
from jobs.control import Answer, ControlClient, ControlServer, Kind, Request, Run, RunTo, Stand, State, apply_owner
from jobs.control.group import _members, apply_group
from tests.support.wait import wait_until

TTL_S = 5.0
ANOTHER_PROCESS = """
import sys
from pathlib import Path
from cdc.settings import Settings
from jobs.control import ControlServer
server = ControlServer(Settings.model_validate_json(sys.argv[1]), process="other:1")
server.acquire(60)
Path(sys.argv[2]).touch()
while server.is_owner():
    server.poll(0.05)
"""


@pytest.fixture
def settings(kafka: Endpoint, pipeline_name: str) -> Settings:
    return Settings(
        pipeline=pipeline_name,
        source=Source(database="unused", tables=("public.*",)),
        kafka=Kafka(bootstrap=kafka.address),
    )


@pytest.fixture
def server(settings: Settings) -> Iterator[ControlServer]:
    with ControlServer(settings, process="here:1") as opened:
        opened.acquire(30)
        yield opened


@pytest.fixture
def client(settings: Settings) -> Iterator[ControlClient]:
    with ControlClient(settings) as opened:
        yield opened


@contextmanager
def applying(server: ControlServer, position: int) -> Iterator[list[int]]:
    """An apply loop that goes where it is told; what it stood at, in order."""
    stood = [position]
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            server.poll(0.02)
            match server.step(stood[-1]):
                case Run():
                    stood.append(stood[-1] + 1)
                case RunTo(lsn):
                    stood.append(lsn)
                case Stand():
                    pass

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield stood
    finally:
        stop.set()
        thread.join()


@contextmanager
def another_process(settings: Settings, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    owns = folder / "owns"
    argv = [sys.executable, "-c", ANOTHER_PROCESS, settings.model_dump_json(), str(owns)]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        yield process, owns
    finally:
        process.kill()
        process.wait()


def members(settings: Settings) -> int:
    """How many processes apply, or wait to."""
    return len(_members(settings, apply_group(settings.pipeline), 30))


def test_pause_hold_and_let_go(server: ControlServer, client: ControlClient) -> None:
    with applying(server, 100) as stood:
        with client.keep(Kind.PAUSE) as kept:
            paused = client.await_answer(kept.id, {State.PAUSED}, 30)
            assert paused.lsn is not None
            target = paused.lsn + 1_000_000
            kept.change(Kind.HOLD, lsn=target)
            assert client.await_answer(kept.id, {State.HOLDING}, 30).lsn == target
            assert stood[stood.index(paused.lsn) :] == [paused.lsn, target]
            kept.change(Kind.HOLD, lsn=paused.lsn)
            with pytest.raises(OperatorError, match="stands at"):
                client.await_answer(kept.id, {State.HOLDING}, 30)
            assert stood[-1] == target
        wait_until(lambda: stood[-1] > target, what="apply to run on after the client has gone")


def test_a_request_outlives_its_ttl_while_its_client_lives_and_not_longer(
    server: ControlServer, client: ControlClient
) -> None:
    with applying(server, 1) as stood:
        with client.keep(Kind.PAUSE, ttl_s=TTL_S) as kept:
            at = client.await_answer(kept.id, {State.PAUSED}, 30).lsn
            sent = {kept._request.sent_ts_ms}
            outlived = time.monotonic() + TTL_S + 1

            def renewed() -> bool:
                sent.add(kept._request.sent_ts_ms)
                return len(sent) > 3 and time.monotonic() > outlived

            wait_until(renewed, what="three renewals, and more than the ttl to pass")
            assert stood[-1] == at
        client.send(Request("killed", Kind.PAUSE, time.time_ns() // 1_000_000, 0.5, "gone:1"))
        still = client.await_answer("killed", {State.PAUSED}, 30).lsn
        assert still is not None
        wait_until(lambda: stood[-1] > still, what="apply to run on after the ttl")


def test_a_rebuild_is_heard_with_its_progress(server: ControlServer, client: ControlClient) -> None:
    with client.keep(Kind.REBUILD, view="orders") as kept:
        [request] = wait_until(lambda: server.poll(0.05), what="the request")
        assert (request.kind, request.view, request.id) == (Kind.REBUILD, "orders", kept.id)
        heard: list[Answer] = []
        for done in (0.0, 0.5):
            server.answer(request.id, State.RUNNING, progress=done)
        server.answer(request.id, State.DONE, lsn=77, message="12 rows")
        answer = client.await_answer(kept.id, {State.DONE}, 30, heard.append)
        assert (answer.lsn, answer.message) == (77, "12 rows")
        assert [each.progress for each in heard] == [0.0, 0.5]
        assert server.requests() == ()


def test_a_failure_is_heard_as_the_error_that_it_was(server: ControlServer, client: ControlClient) -> None:
    for why, expected in (
        (Trouble("REBUILD_DIFFERS", "it differs", "report it"), ("REBUILD_DIFFERS", "report it")),
        (Trouble("SPARK", "it fails", ""), ("SPARK", "see the log of the apply process")),
    ):
        with client.keep(Kind.REBUILD, view="orders") as kept:
            [request] = wait_until(lambda: server.poll(0.05), what="the request")
            server.fail(request.id, why)
            with pytest.raises(OperatorError, match=why.message) as caught:
                client.await_answer(kept.id, {State.DONE}, 30)
        assert (caught.value.code, caught.value.hint) == expected
        assert server.requests() == ()


def test_requests_sent_before_apply_ran(settings: Settings, client: ControlClient) -> None:
    now_ms = time.time_ns() // 1_000_000
    client.send(Request("stale", Kind.REBUILD, now_ms - 60_000, 30, "cli:1", view="a"))
    client.send(Request("done", Kind.REBUILD, now_ms, 30, "cli:1", view="b"))
    with ControlServer(settings) as first:
        first.acquire(30)
        first.answer("done", State.DONE)
    client.send(Request("fresh", Kind.REBUILD, now_ms, 30, "cli:1", view="c"))
    with ControlServer(settings) as second:
        second.acquire(30)
        assert [request.id for request in second.poll()] == ["fresh"]


def test_nobody_answers(client: ControlClient) -> None:
    with client.keep(Kind.PAUSE) as kept, pytest.raises(TransientError) as caught:
        client.await_answer(kept.id, {State.PAUSED}, 0.3)
    assert caught.value.code == "CONTROL_TIMEOUT"


def test_junk_on_the_topic_harms_nobody(server: ControlServer, client: ControlClient, settings: Settings) -> None:
    junk = Producer({"bootstrap.servers": settings.kafka.bootstrap})
    junk.produce(f"{settings.pipeline}._control", key=b"\xff\xfe", value=b"\x00 junk")
    junk.produce(f"{settings.pipeline}._control", value=b"no key")
    assert junk.flush(10) == 0
    with applying(server, 5), client.keep(Kind.PAUSE) as kept:
        assert client.await_answer(kept.id, {State.PAUSED}, 30)


def test_a_second_apply_waits_without_disturbing_the_first(
    server: ControlServer, settings: Settings, tmp_path: Path
) -> None:
    assert apply_owner(settings) == "here:1"
    seen: list[str | None] = []
    with ControlServer(settings, process="there:2") as second:
        with pytest.raises(OperatorError, match="here:1") as caught:
            second.acquire(4, on_wait=lambda owner, _: seen.append(owner))
        assert caught.value.code == "APPLY_RUNNING"
        assert set(seen) == {"here:1"}
        assert server.is_owner()
        server.confirm_owner()
    assert server.is_owner()


def test_the_next_takes_over_at_once_when_the_first_leaves(settings: Settings, tmp_path: Path) -> None:
    assert apply_owner(settings) is None
    with ExitStack() as others:
        with ControlServer(settings, process="here:1") as first:
            first.acquire(30)
            _, owns = others.enter_context(another_process(settings, tmp_path))
            wait_until(lambda: not first.poll() and members(settings) == 2, what="the other process to join the group")
            first.confirm_owner()
            assert not owns.exists()
        wait_until(owns.exists, timeout_s=60, what="the other process to own the partition")
        assert apply_owner(settings) == "other:1"


def test_a_killed_apply_is_succeeded(settings: Settings, tmp_path: Path) -> None:
    with another_process(settings, tmp_path) as (process, owns):
        wait_until(owns.exists, what="the other process to own the partition")
        process.kill()
        with ControlServer(settings, process="here:1") as server:
            server.acquire(30)
            assert apply_owner(settings) == "here:1"


def test_a_frozen_apply_learns_that_it_is_a_zombie(settings: Settings, tmp_path: Path) -> None:
    with another_process(settings, tmp_path) as (process, owns):
        wait_until(owns.exists, what="the other process to own the partition")
        os.kill(process.pid, signal.SIGSTOP)
        with ControlServer(settings, process="here:1") as server:
            server.acquire(30)
            os.kill(process.pid, signal.SIGCONT)
            assert process.wait(30) == 0, "the zombie must see that it is no longer the owner"
            assert server.is_owner()


def test_ownership_is_confirmed_by_the_broker_not_by_memory(settings: Settings, server: ControlServer) -> None:
    server.confirm_owner()
    server._consumer.unsubscribe()
    with pytest.raises(OperatorError) as caught:
        wait_until(server.confirm_owner, what="the broker to deny it")
    assert caught.value.code == "APPLY_FENCED"
    assert not server.is_owner()


def test_a_broker_that_is_away(settings: Settings) -> None:
    away: Any = settings.model_copy(update={"kafka": Kafka(bootstrap="127.0.0.1:1")})
    with pytest.raises(TransientError):
        apply_owner(away, timeout_s=1)
