"""What is running, as kept in <data>/stack.json: endpoints, users, the files that hold passwords, and processes.

Any program of the pipeline finds the embedded servers here; it holds no secret itself.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from cdc.stack.secret import write_private
from cdc.stack.server import Endpoint


class StackState(BaseModel):
    """The endpoints by server name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: dict[str, Endpoint]

    @property
    def postgres(self) -> Endpoint:
        return self.servers["postgres"]

    @property
    def kafka(self) -> Endpoint:
        return self.servers["kafka"]

    @property
    def opensearch(self) -> Endpoint:
        return self.servers["opensearch"]

    @property
    def valkey(self) -> Endpoint:
        return self.servers["valkey"]


def read(path: Path) -> StackState | None:
    """The state, if the stack was started and not stopped since."""
    try:
        return StackState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None


def write(path: Path, state: StackState) -> None:
    """Keep the state, in one rename."""
    write_private(path, state.model_dump_json(indent=2) + "\n")
