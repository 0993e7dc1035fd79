"""Capture and apply in the background: started detached, found again by their pid files, stopped in good order.

In: settings. Out: processes whose output goes to <data>/logs. A service that ended by itself is reported with the end
of its log.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdc.errors import OperatorError
from cdc.settings import Settings
from cdc.stack.process import Command, Process, log_end, spawn, stop

NAMES: Final = ("capture", "apply")
_STOP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Service:
    """One of the two loops of a pipeline."""

    name: str
    settings: Settings
    config: Path

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.settings.data.absolute() / "logs" / f"{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.settings.data.absolute() / "services" / f"{self.name}.json"

    def process(self) -> Process | None:
        """What the pid file names, alive or not."""
        try:
            return Process.model_validate_json(self._pid_file.read_bytes())
        except FileNotFoundError:
            return None

    def running(self) -> Process | None:
        """Its process, if it lives."""
        process = self.process()
        return process if process is not None and process.alive else None

    def start(self) -> Process:
        """Start it unless it runs."""
        process = self.running()
        if process is not None:
            return process
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "cdc", "--config", str(self.config.absolute()), self.name]
        environment = {name: value for name, value in os.environ.items() if name != "LC_ALL"}
        process = spawn(Command(argv, Path.cwd(), env=environment), self.log)
        self._pid_file.write_text(process.model_dump_json())
        return process

    def stop(self) -> bool:
        """Stop it; whether it ran."""
        process = self.process()
        ran = process is not None and process.alive
        if process is not None:
            stop(process, _STOP_S)  # also what it left behind when it was killed
        self._pid_file.unlink(missing_ok=True)
        return ran

    def require_alive(self) -> None:
        """OperatorError with the end of the log if it has ended by itself."""
        process = self.process()
        if process is not None and not process.alive:
            raise OperatorError(
                f"{self.name} has stopped by itself; its log ends with:\n{log_end(self.log)}",
                f"the whole log is {self.log}; `afterimage up` starts it again",
                code="SERVICE_ENDED",
            )


def services(settings: Settings, config: Path) -> list[Service]:
    """Capture first, since apply follows it."""
    return [Service(name, settings, config) for name in NAMES]
