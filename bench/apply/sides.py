"""The two sides as processes that take turns on one machine: one works while the other stands still.

In: a pipeline, whose topics both read. Out: how long each took until its Delta tables showed what was there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from bench.afterimage import Pipeline
from bench.apply.versions import Ends, Versions, ours, recipes
from bench.usage import children, forget_peak, peak_of_all_mb
from cdc.settings import Apply

_WAIT_S = 1800.0
_LOOK_S = 0.002
_REST_S = 0.7
"""After a batch: the recipe writes down that it is done, apply its ledger."""


class Side(ABC):
    """A process with a JVM below it, and its mirrors' versions."""

    name: str

    def __init__(self, pipeline: Pipeline, tables: Sequence[str]) -> None:
        self.pipeline = pipeline
        self.versions = {table: self._versions(table) for table in tables}
        self.process = self._start()
        self.folder: Path

    @abstractmethod
    def _argv(self) -> list[str]:
        """What to start."""

    @abstractmethod
    def _versions(self, table: str) -> Versions:
        """Where its mirror of the table is."""

    @abstractmethod
    def go(self) -> None:
        """Work."""

    @abstractmethod
    def hold(self) -> None:
        """Stand still, between two batches."""

    def turn(self, wanted: Mapping[str, Ends]) -> float:
        """Let it work until these tables have got there; how many seconds that took."""
        began = time.monotonic()
        self.go()
        self.wait_for(wanted)
        took = max(self.versions[table].seen[-1].at_s for table in wanted) - began
        time.sleep(_REST_S)
        self.hold()
        return took

    def wait_for(self, wanted: Mapping[str, Ends]) -> None:
        """Look until all of them have got there."""
        deadline = time.monotonic() + _WAIT_S
        while not all(self.look(table).has_reached(ends) for table, ends in wanted.items()):
            assert self.process.poll() is None, self._end()
            assert time.monotonic() < deadline, f"{self.name} does not get there"
            time.sleep(_LOOK_S)

    def look(self, table: str) -> Versions:
        """The table's versions as they are now."""
        self.versions[table].look()
        return self.versions[table]

    def ask(self, words: str) -> None:
        """Say something to the process."""
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Its next line. What the JVM has to say of its own accord stands in brackets."""
        output: IO[str] | None = self.process.stdout
        assert output is not None
        while (line := output.readline()).startswith("["):
            pass
        assert line, self._end()
        return line.strip()

    def forget_peak(self) -> None:
        """Count memory from here."""
        for pid in (self.process.pid, *children(self.process.pid)):
            forget_peak(pid)

    @property
    def peak_mb(self) -> float:
        """The most that the process and its JVM held since then, together."""
        return peak_of_all_mb(self.process.pid)

    def stop(self) -> None:
        """End it."""
        if self.process.poll() is not None:
            return
        self.go()
        self.ask("stop")
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _end(self) -> str:
        """What it said last."""
        return f"{self.name} has ended: {self._log.read_text()[-3000:]}"

    @property
    def _log(self) -> Path:
        return self.pipeline.bench.folder / f"{self.name}-{self.pipeline.settings.pipeline}.log"

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._argv(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )


class Ours(Side):
    """Apply, with a gate."""

    name = "ours"

    def go(self) -> None:
        self.ask("go")

    def hold(self) -> None:
        self.ask("hold")
        heard = self.hear()
        assert heard == "held", f"{heard}\n{self._end()}"

    def _argv(self) -> list[str]:
        return [sys.executable, "-m", "bench.apply.worker", str(self.pipeline.config)]

    def _versions(self, table: str) -> Versions:
        return Versions(Path(self.pipeline.settings.delta_root) / f"public.{table}", ours(self.pipeline.topic(table)))


class Recipe(Side):
    """The peer; it stands still by a signal, since a query has nothing to hold it by."""

    name = "recipe"

    def go(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def hold(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)

    def done(self) -> None:
        """Wait until it says so."""
        assert self.hear().startswith("done")

    def _argv(self) -> list[str]:
        config = self.pipeline.config.with_suffix(".recipe.yml")
        settings = self.pipeline.settings
        apply = settings.apply.model_dump(exclude_unset=True)
        # It is paused for longer than Spark believes its own executor to be alive.
        apply |= {"driver_memory": "2g", "spark": {"spark.network.timeout": "10h"}}
        update = {"apply": Apply(**apply), "data": settings.data / "recipe"}
        self.pipeline.write(config, settings.model_copy(update=update))
        self.folder = self.pipeline.bench.folder / f"recipe-{settings.pipeline}"
        views = {path.stem: path.read_text() for path in settings.views.glob("*.sql")}
        words = [str(config), str(self.folder), *self.versions, *(["--views", json.dumps(views)] if views else [])]
        return [sys.executable, "-m", "bench.apply.recipe", *words]

    def _versions(self, table: str) -> Versions:
        folder = self.pipeline.bench.folder / f"recipe-{self.pipeline.settings.pipeline}" / table
        return Versions(folder / "table", recipes(self.pipeline.topic(table), folder / "checkpoint"))


class Recompute(Side):
    """Views computed in full over our mirrors, when asked; between that it waits for its input."""

    name = "recompute"

    def go(self) -> None:
        pass

    def hold(self) -> None:
        pass

    def recompute(self, view: str, select: str) -> float:
        """Seconds until the view's own table has been overwritten."""
        began = time.monotonic()
        self.ask(f"{view} {select}")
        heard = self.hear()
        assert heard == f"done {view}", f"{heard}\n{self._end()}"
        return time.monotonic() - began

    def _argv(self) -> list[str]:
        self.folder = self.pipeline.bench.folder / f"recompute-{self.pipeline.settings.pipeline}"
        config = self.pipeline.config.with_suffix(".recompute.yml")
        self.pipeline.write(config, self.pipeline.settings)
        return [sys.executable, "-m", "bench.apply.recompute", str(config), str(self.folder)]

    def _versions(self, table: str) -> Versions:
        return Versions(Path(self.pipeline.settings.delta_root) / f"public.{table}", ours(self.pipeline.topic(table)))
