"""Our side as a process: `afterimage apply` as it is, but for a gate between two batches that the benchmark opens.

In: a configuration, and lines on standard input (go, hold, stop). Out: "held" whenever it waits at the gate.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from cdc.configuration import load_settings
from cdc.log import configure
from jobs.apply import ApplyRun
from jobs.control import ControlServer
from jobs.session import spark_session


class Gate:
    """Stands where apply asks whether to stop."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._stop = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def stop_requested(self, wait_s: float) -> bool:
        """Wait until open, then as apply wants to."""
        if not self._open.is_set():
            tell("held")
            self._open.wait()
        return self._stop.wait(wait_s) if wait_s else self._stop.is_set()

    def _listen(self) -> None:
        for line in sys.stdin:
            match line.strip():
                case "go":
                    self._open.set()
                case "hold":
                    self._open.clear()
                case "stop":
                    break
        self._stop.set()
        self._open.set()


def tell(word: str) -> None:
    """To the benchmark."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    settings = load_settings(parser.parse_args().config)
    configure()
    gate = Gate()
    spark = spark_session(settings, "bench")
    with ControlServer(settings) as control:
        control.acquire(60)
        ApplyRun(settings, spark, control, gate.stop_requested).run()
    spark.stop()


if __name__ == "__main__":
    main()
