"""What the stack knows of a server, whichever it is.

A server says which ports it wants, what to run, and whether it answers; starting, watching and stopping it is
daemon.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from cdc.stack.locks import Artifact
from cdc.stack.ports import HOST
from cdc.stack.process import Command, Process

Ports = Mapping[str, int]


class Endpoint(BaseModel):
    """Where a running server is reached, as kept in stack.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    host: str = HOST
    port: int
    ports: dict[str, int]
    user: str | None = None
    password_file: Path | None = None
    process: Process
    log: Path

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def password(self) -> str:
        """Read from its file when asked for, so that it is never in the state."""
        return self.password_file.read_text().strip() if self.password_file else ""


class Server(Protocol):
    """One kind of server."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> Path:
        """Holds its log, pid, ports and passwords; its data too where its account can get there."""
        ...

    @property
    def preferred(self) -> Ports:
        """The first is the one that clients use."""
        ...

    @property
    def user(self) -> str | None: ...

    @property
    def password_file(self) -> Path | None: ...

    def artifacts(self) -> tuple[Artifact, ...]:
        """What it is made of, to be fetched."""
        ...

    def prepare(self, ports: Ports) -> Command:
        """Fetch, unpack, initialise and configure what is not yet, and say what to run."""
        ...

    def why_not_ready(self, ports: Ports) -> str | None:
        """Ask over its own protocol: None if it serves."""
        ...
