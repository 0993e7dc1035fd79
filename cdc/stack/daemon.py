"""One server's life: start it, wait until it answers, find it again, report a crash, stop it.

In: a Server. Out: an Endpoint. Everything is found again from the pid and ports files in its folder, so any process may
stop what another one started.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from cdc import log
from cdc.errors import OperatorError
from cdc.stack import ports as port_choice
from cdc.stack.process import Process, listens, log_end, spawn, stop
from cdc.stack.server import Endpoint, Ports, Server

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 20.0
POLL_S = 0.05
PORT_ATTEMPTS = 3
LOG_BYTES_MAX = 10_000_000

_log = log.get(__name__)


class Cancelled(Exception):  # noqa: N818
    """Starting was given up because another server failed or the user pressed Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a server is: state is ready, starting, crashed or stopped."""

    name: str
    state: str
    detail: str | None = None


def log_path(server: Server) -> Path:
    """Where its output goes."""
    return server.folder / "server.log"


def running(server: Server) -> Endpoint | None:
    """Its endpoint if its process is alive, whether or not it answers yet."""
    process, ports = _read_process(server), _read_ports(server)
    if process is None or ports is None or not process.alive:
        return None
    return _endpoint(server, process, ports)


def start(server: Server, cancelled: Event | None = None) -> Endpoint:
    """Start it unless it runs already, and return once it answers."""
    cancelled = cancelled or Event()
    if (endpoint := running(server)) is not None:
        _wait_until_ready(server, endpoint, cancelled)
        return endpoint
    if _read_process(server) is not None:
        _log.warning("had crashed, starting again", server=server.name, log=str(log_path(server)))
        halt(server)
    for attempt in range(1, PORT_ATTEMPTS + 1):
        ports = port_choice.choose({**server.preferred, **(_read_ports(server) or {})})
        endpoint = _spawn(server, ports)
        try:
            _wait_until_ready(server, endpoint, cancelled)
        except _Exited as error:
            _pid_path(server).unlink(missing_ok=True)
            # Somebody may have taken the port after we had looked.
            if attempt < PORT_ATTEMPTS and not all(port_choice.is_free(port) for port in ports.values()):
                continue
            raise crash_report(server) from error
        except BaseException:
            halt(server)
            raise
        _log.info("started", server=server.name, port=endpoint.port, pid=endpoint.process.pid)
        return endpoint
    raise AssertionError("the last attempt returns or raises")


def halt(server: Server, deadline_s: float = STOP_DEADLINE_S) -> bool:
    """Stop it and its children; whether there was anything to stop."""
    process = _read_process(server)
    was_alive = process is not None and process.alive
    if process is not None:
        stop(process, deadline_s)
    _pid_path(server).unlink(missing_ok=True)
    if was_alive:
        _log.info("stopped", server=server.name)
    return was_alive


def health(server: Server) -> Health:
    """How it is right now; a crash comes with the end of its log."""
    process, ports = _read_process(server), _read_ports(server)
    if process is None or ports is None:
        return Health(server.name, "stopped")
    if not process.alive:
        return Health(server.name, "crashed", log_end(log_path(server)))
    why = _why_not_ready(server, process, ports)
    return Health(server.name, "ready") if why is None else Health(server.name, "starting", why)


def crash_report(server: Server) -> OperatorError:
    """The error for a server that ended by itself."""
    return OperatorError(
        f"{server.name} stopped by itself; its log ends with:\n{log_end(log_path(server))}",
        f"the whole log is {log_path(server)}",
        code="SERVER_CRASHED",
    )


class _Exited(Exception):  # noqa: N818
    pass


def _spawn(server: Server, ports: Ports) -> Endpoint:
    log_file = log_path(server)
    try:
        server.folder.mkdir(parents=True, exist_ok=True)
        command = server.prepare(ports)
        _write(_ports_path(server), json.dumps(dict(ports)))
        if log_file.exists() and log_file.stat().st_size > LOG_BYTES_MAX:
            log_file.replace(log_file.with_suffix(".log.old"))
        process = spawn(command, log_file)
    except OSError as error:
        raise OperatorError(
            f"{server.name} cannot be started: {error.strerror}: {error.filename}",
            "is the disk full, or was the data folder made by another user?",
            code="SERVER_FILES",
        ) from error
    _write(_pid_path(server), process.model_dump_json())
    return _endpoint(server, process, ports)


def _wait_until_ready(server: Server, endpoint: Endpoint, cancelled: Event) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while (why := _why_not_ready(server, endpoint.process, endpoint.ports)) is not None:
        if not endpoint.process.alive:
            raise _Exited
        if time.monotonic() > deadline:
            raise OperatorError(
                f"{server.name} does not answer after {START_DEADLINE_S:.0f} s ({why}); its log ends with:\n"
                f"{log_end(log_path(server))}",
                "the machine may be too busy or short of memory",
                code="SERVER_SLOW",
            )
        if cancelled.wait(POLL_S):
            raise Cancelled


def _why_not_ready(server: Server, process: Process, ports: Ports) -> str | None:
    # Somebody else's server may answer where ours was to be.
    missing = [name for name, port in ports.items() if not listens(process, port)]
    return f"not listening yet ({', '.join(missing)})" if missing else server.why_not_ready(ports)


def _endpoint(server: Server, process: Process, ports: Ports) -> Endpoint:
    return Endpoint(
        name=server.name,
        port=next(iter(ports.values())),
        ports=dict(ports),
        user=server.user,
        password_file=server.password_file,
        process=process,
        log=log_path(server),
    )


def _pid_path(server: Server) -> Path:
    return server.folder / "pid.json"


def _ports_path(server: Server) -> Path:
    return server.folder / "ports.json"


def _read_process(server: Server) -> Process | None:
    try:
        return Process.model_validate_json(_pid_path(server).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_ports(server: Server) -> dict[str, int] | None:
    try:
        return dict(json.loads(_ports_path(server).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)
