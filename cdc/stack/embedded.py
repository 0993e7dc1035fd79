"""The whole embedded stack in one data folder: up, down, state, health.

In: a folder. Out: a StackState. Invariant: after a failed or interrupted `up`, what it started is stopped again; after
`down`, no process of the folder is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import MappingProxyType

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from cdc.errors import OperatorError
from cdc.stack import daemon, state
from cdc.stack.account import unprivileged
from cdc.stack.daemon import Health
from cdc.stack.fetch import fetch
from cdc.stack.java import java_home
from cdc.stack.kafka import PREFERRED_PORT as KAFKA_PORT
from cdc.stack.kafka import Kafka
from cdc.stack.locks import load
from cdc.stack.opensearch import JAVA_BELOW, OpenSearch
from cdc.stack.opensearch import PREFERRED_PORT as OPENSEARCH_PORT
from cdc.stack.postgres import DEFAULT_MAJOR, Postgres
from cdc.stack.postgres import PREFERRED_PORT as POSTGRES_PORT
from cdc.stack.server import Endpoint, Server
from cdc.stack.state import StackState
from cdc.stack.valkey import PREFERRED_PORT as VALKEY_PORT
from cdc.stack.valkey import Valkey

LOCK_DEADLINE_S = 300
PORTS: Mapping[str, int] = MappingProxyType(
    {"postgres": POSTGRES_PORT, "kafka": KAFKA_PORT, "opensearch": OPENSEARCH_PORT, "valkey": VALKEY_PORT}
)


class Stack:
    """Postgres, Kafka, OpenSearch and Valkey with their data under one folder."""

    def __init__(
        self,
        data: Path,
        *,
        postgres_major: int = DEFAULT_MAJOR,
        ports: Mapping[str, int] = PORTS,
        short_lived: bool = False,
    ) -> None:
        """`ports` are the preferred ones, 0 or none means any free one; `short_lived` starts faster and runs slower."""
        self.data = data.absolute()
        self._servers: tuple[Server, ...] = (
            Postgres(self.data / "postgres", major=postgres_major, port=ports.get("postgres", 0)),
            Kafka(self.data / "kafka", port=ports.get("kafka", 0), short_lived=short_lived),
            OpenSearch(self.data / "opensearch", port=ports.get("opensearch", 0), short_lived=short_lived),
            Valkey(self.data / "valkey", port=ports.get("valkey", 0)),
        )

    def up(self, console: Console | None = None) -> StackState:
        """Start what does not run yet, all at once, and return when everything answers."""
        screen = console or Console(quiet=True)
        with self._alone():
            self._fetch(screen)
            before = {server.name for server in self._servers if daemon.running(server)}
            try:
                endpoints = self._start_all(screen)
            except BaseException:
                self._halt([server for server in self._servers if server.name not in before])
                raise
            found = StackState(servers=endpoints)
            state.write(self._state_file, found)
            return found

    def down(self) -> list[str]:
        """Stop everything; the names of those that were running."""
        if not self.data.is_dir():
            return []
        with self._alone():
            stopped = self._halt(list(self._servers))
            self._state_file.unlink(missing_ok=True)
            return stopped

    def state(self) -> StackState | None:
        """What `up` left running, from stack.json."""
        return state.read(self._state_file)

    def health(self) -> list[Health]:
        """Each server, asked now."""
        with ThreadPoolExecutor(len(self._servers)) as pool:
            return list(pool.map(daemon.health, self._servers))

    @property
    def _state_file(self) -> Path:
        return self.data / "stack.json"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.data.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.data / ".lock", timeout=LOCK_DEADLINE_S):
                yield
        except Timeout as error:
            raise OperatorError(
                f"another command has been starting or stopping the stack in {self.data} for {LOCK_DEADLINE_S} s",
                "wait for it, or end it",
                code="BUSY",
            ) from error

    def _fetch(self, console: Console) -> None:
        """Everything at once, under one progress bar, Spark's jars too."""
        wanted = [artifact for server in self._servers for artifact in server.artifacts()]
        fetch([*wanted, *load("spark").artifacts], what="Fetching servers", console=console)
        with console.status("Looking for Java"):
            java_home(unprivileged(), JAVA_BELOW)

    def _start_all(self, console: Console) -> dict[str, Endpoint]:
        columns = (SpinnerColumn(finished_text="[green]✓"), TextColumn("{task.description:<40}"), TimeElapsedColumn())
        cancelled = Event()
        with Progress(*columns, console=console) as progress, ThreadPoolExecutor(len(self._servers)) as pool:
            futures = {
                server.name: pool.submit(_start, server, cancelled, progress, progress.add_task(server.name, total=1))
                for server in self._servers
            }
            try:
                wait(futures.values(), return_when=FIRST_EXCEPTION)
            finally:
                # After a failure, or Ctrl-C, the others are not waited for.
                if not all(future.done() and future.exception() is None for future in futures.values()):
                    cancelled.set()
        _raise_first([*futures.values()])
        return {name: future.result() for name, future in futures.items()}

    def _halt(self, servers: list[Server]) -> list[str]:
        with ThreadPoolExecutor(max(1, len(servers))) as pool:
            stopped = list(pool.map(daemon.halt, servers))
        return [server.name for server, was_running in zip(servers, stopped, strict=True) if was_running]


def _start(server: Server, cancelled: Event, progress: Progress, task: TaskID) -> Endpoint:
    endpoint = daemon.start(server, cancelled)
    progress.update(task, completed=1, description=f"{server.name} on {endpoint.address}")
    return endpoint


def _raise_first(futures: list[Future[Endpoint]]) -> None:
    """The failure that made the others give up, not their giving up."""
    failures = [error for future in futures if (error := future.exception()) is not None]
    for error in failures:
        if not isinstance(error, daemon.Cancelled):
            raise error
    if failures:
        raise failures[0]
