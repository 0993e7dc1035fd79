"""Server processes: started detached, known by pid and start time, stopped with their children.

In: a Command. Out: a Process record that outlives this program. Invariant: a pid that now belongs to another process is
never signalled.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from cdc.stack.account import Account

MARK = "AFTERIMAGE_PROCESS"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
THREADS = 17  # field 20 of /proc/<pid>/stat, counted after the closing parenthesis of field 2
STARTTIME = 19  # field 22

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Those started by this program, which has to reap them."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, where, as whom, and how it is asked to stop (in order of rudeness; SIGKILL comes last anyway).

    `owns_cwd`: whatever else runs the same program in that folder belongs to it.
    """

    argv: Sequence[str]
    cwd: Path
    account: Account | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,)
    owns_cwd: bool = False


class Process(BaseModel):
    """A process by pid and start time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    started: str
    program: str
    cwd: Path
    owns_cwd: bool = False
    mark: str
    """Stands in the environment of the process and of all that it starts."""
    stop_signals: tuple[int, ...] = (signal.SIGTERM,)

    @property
    def alive(self) -> bool:
        """Whether it is this very process that still runs."""
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
            return False
        return start_time(self.pid) == self.started


def start_time(pid: int) -> str | None:
    """A string that is the same for the same process only; None if there is none or it is a zombie."""
    try:
        if BOOT_ID.exists():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            # The first thread is a zombie already while others of a killed JVM still hold its ports.
            is_gone = fields[0] == "X" or (fields[0] == "Z" and int(fields[THREADS]) <= 1)
            return None if is_gone else f"{BOOT_ID.read_text().strip()}:{fields[STARTTIME]}"
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except (OSError, psutil.Error):
        return None


def spawn(command: Command, log: Path) -> Process:
    """Start a server in a session of its own, its output appended to `log`."""
    account = command.account
    mark = secrets.token_hex(8)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **command.env, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    _children[child.pid] = child
    started = start_time(child.pid) or "gone"
    return Process(
        pid=child.pid,
        started=started,
        program=os.path.realpath(command.argv[0]),
        cwd=command.cwd.resolve(),
        owns_cwd=command.owns_cwd,
        mark=mark,
        stop_signals=tuple(command.stop_signals),
    )


def stop(process: Process, deadline_s: float) -> None:
    """Ask it to stop, then insist; children that outlive it are killed, also those of one that had crashed."""
    for number in process.stop_signals:
        if process.alive:
            os.kill(process.pid, number)
            _wait(process, deadline_s)
    if process.alive:
        os.kill(process.pid, signal.SIGKILL)
        _wait(process, deadline_s)
    survivors = _leftovers(process)
    for survivor in survivors:
        with suppress(psutil.NoSuchProcess):
            survivor.kill()
    psutil.wait_procs(survivors, timeout=deadline_s)


def _leftovers(process: Process) -> list[psutil.Process]:
    """What it started and what outlived it, whichever sessions and parents they have by now."""
    found = []
    for other in psutil.process_iter():
        with suppress(psutil.Error):
            if _belongs(other, process):
                found.append(other)
    return found


def _belongs(other: psutil.Process, process: Process) -> bool:
    # Postgres's backends write their titles over their environment.
    if process.owns_cwd and other.cwd() == str(process.cwd) and _same_program(other.exe(), process.program):
        return True
    return bool(other.environ().get(MARK) == process.mark)


def _same_program(running: str, started: str) -> bool:
    # The wheel's bin/java is a script that becomes java-real.
    return running in (started, f"{started}-real")


def _wait(process: Process, deadline_s: float) -> None:
    child = _children.get(process.pid)
    try:
        if child is not None:
            child.wait(deadline_s)
        else:
            psutil.Process(process.pid).wait(deadline_s)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired, psutil.NoSuchProcess):
        return


def listens(process: Process, port: int) -> bool:
    """Whether it is this process, and not another one's server, that a client of the port would reach."""
    try:
        connections = psutil.Process(process.pid).net_connections("tcp")
    except psutil.Error:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)


def log_end(log: Path, lines: int = 20) -> str:
    """The last lines of a server's log, without the frames of Java's stack traces."""
    try:
        with log.open(errors="replace") as file:
            return "".join(deque((line for line in file if not line.startswith("\tat ")), lines)).rstrip()
    except FileNotFoundError:
        return "(no log)"
