"""The product's commands as processes of their own, for tests that kill them or read what they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cdc.settings import Role, Settings


def write_config(settings: Settings, folder: Path, name: str = "afterimage.yml") -> Path:
    """The settings as the file a user would have written, passwords included."""
    body = json.loads(settings.model_dump_json(exclude_unset=True))
    for role in ("stream", "read", "admin"):
        found: Role | None = getattr(settings.source, role)
        if found is not None:
            body["source"][role] = {"user": found.user, "password": found.secret()}
    if settings.cache.password is not None:
        body["cache"]["password"] = settings.cache.password.get_secret_value()
    path = folder / name
    path.write_text(yaml.safe_dump(body, allow_unicode=True))
    return path


@dataclass
class Command:
    """`afterimage --config X ...` in the background, its output in a file."""

    config: Path
    words: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    module: str = "cdc"
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Command:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, "--config", str(self.config), *self.words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        return self

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the process itself; what it started must notice by itself."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def stop(self, timeout_s: float = 180) -> int:
        """SIGTERM, as a service manager would."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        finally:
            self.process.kill()
            self.process.wait(30)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def run_command(config: Path, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run one to its end; output as text."""
    return subprocess.run(
        [sys.executable, "-m", "cdc", "--config", str(config), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def json_of(completed: subprocess.CompletedProcess[str]) -> Any:
    assert completed.stdout, completed.stderr
    return json.loads(completed.stdout)
