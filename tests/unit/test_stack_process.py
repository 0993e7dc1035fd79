"""Processes: known by start time, stopped with what they started, and a stranger's pid is never touched."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from cdc.stack import process
from cdc.stack.process import Command, Process, log_end, spawn, start_time, stop
from tests.support.wait import wait_until

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
# Like Postgres's backends: a child with a session of its own, which outlives its parent's death.
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""

# Like a killed JVM for a moment: the first thread is a zombie, the others still hold what they opened.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(0)
"""


@pytest.fixture
def run(tmp_path):
    started = []

    def go(program: str) -> Process:
        log = tmp_path / "log"
        found = spawn(Command([sys.executable, "-c", program], tmp_path), log)
        started.append(found)
        wait_until(lambda: "up" in log.read_text(), what="the program")
        return found

    yield go
    for found in started:
        stop(found, 10)


def family(folder: Path) -> list[int]:
    found = []
    for other in psutil.process_iter(["cwd"]):
        if other.info["cwd"] == str(folder):
            found.append(other.pid)
    return found


def test_stops_what_it_started(run, tmp_path):
    found = run(SLEEP)
    assert found.alive
    stop(found, 10)
    assert not found.alive
    assert family(tmp_path) == []


def test_insists_when_asking_does_not_help(run, tmp_path):
    found = run(STUBBORN)
    stop(found, 0.2)
    assert not found.alive
    assert family(tmp_path) == []


@pytest.mark.parametrize("crash_first", [False, True])
def test_leaves_no_child_behind(run, tmp_path, crash_first):
    found = run(PARENT)
    assert len(family(tmp_path)) == 2
    if crash_first:
        os.kill(found.pid, signal.SIGKILL)
        wait_until(lambda: not found.alive)
    stop(found, 10)
    assert family(tmp_path) == []


def test_a_recycled_pid_is_never_signalled(run):
    stranger = run(SLEEP)
    stale = stranger.model_copy(update={"started": "another time", "mark": "another"})
    assert not stale.alive
    stop(stale, 1)
    assert stranger.alive


def test_only_an_owner_of_its_folder_takes_others_of_its_program_along(run):
    bystander, found = run(SLEEP), run(SLEEP)
    stop(found, 10)
    assert bystander.alive
    stop(found.model_copy(update={"owns_cwd": True}), 10)
    assert not bystander.alive


def test_is_found_again_from_its_record(run):
    found = run(SLEEP)
    assert Process.model_validate_json(found.model_dump_json()) == found


def test_a_zombie_counts_as_dead(run):
    found = run(SLEEP)
    os.kill(found.pid, signal.SIGKILL)
    wait_until(lambda: start_time(found.pid) is None, what="the kernel to end it")
    assert not found.alive


def test_a_process_whose_first_thread_has_ended_is_still_there(run):
    found = run(HEADLESS)
    wait_until(lambda: psutil.Process(found.pid).status() == psutil.STATUS_ZOMBIE, what="the first thread to end")
    assert found.alive
    assert start_time(found.pid) == found.started
    stop(found, 10)
    assert start_time(found.pid) is None


def test_without_procfs_the_start_time_comes_from_psutil(run, monkeypatch):
    monkeypatch.setattr(process, "BOOT_ID", Path("/nowhere"))
    found = run(SLEEP)
    assert found.alive
    assert start_time(2**22 + 1) is None


def test_the_end_of_a_log_leaves_out_stack_frames(tmp_path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {n}\n\tat some.Frame\n" for n in range(50)))
    assert log_end(log, 2) == "line 48\nline 49"
    assert log_end(tmp_path / "none") == "(no log)"
