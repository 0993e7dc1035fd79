"""Ports on the loopback: the preferred one if it is free, else any free one.

Invariant: two servers that are started at the same time by this program never get the same port.
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Mapping
from threading import Lock

from cdc.errors import OperatorError

HOST = "127.0.0.1"
ATTEMPTS = 100
ANY = range(15_001, 32_000)
"""Below the ports that outgoing connections take: a client that keeps trying to reach a server which was killed could
be given the server's own port, and then hold it."""

_lock = Lock()
_given: set[int] = set()


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As servers do: a port whose last connection is only lingering counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True


def choose(wanted: Mapping[str, int]) -> dict[str, int]:
    """A free port for each name; 0 means any."""
    with _lock:
        return {name: _one(port) for name, port in wanted.items()}


def _one(preferred: int) -> int:
    if preferred and is_free(preferred):
        return preferred
    for _ in range(ATTEMPTS):
        port = secrets.choice(ANY)
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OperatorError("no free port on the loopback", "stop what holds them", code="PORTS")
