"""`make test-matrix`: the tests marked `matrix`, against each Postgres version, and a table of how it went.

In: versions, and what else to give to pytest. Out: a line when a version begins and one when it ends, what failed,
then the table; exit 1 unless all passed everywhere. Each version is a pytest with servers of its own, two at a time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

VERSIONS = ("14", "15", "16", "17", "18")


@dataclass(frozen=True)
class Outcome:
    """What one version came to."""

    version: str
    passed: int
    failed: int
    seconds: float
    exit_code: int
    output: str

    @property
    def holds(self) -> bool:
        return self.exit_code == 0 and self.passed > 0


def main() -> int:
    """Run them, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.matrix", description=__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS, choices=VERSIONS)
    parser.add_argument("--jobs", type=int, default=2, help="versions at a time")
    chosen, pytest_arguments = parser.parse_known_args()
    console = Console()
    with ThreadPoolExecutor(chosen.jobs) as pool:
        outcomes = list(pool.map(lambda version: _told(console, version, pytest_arguments), chosen.versions))
    console.print(_table(outcomes))
    return 0 if all(outcome.holds for outcome in outcomes) else 1


def _told(console: Console, version: str, arguments: list[str]) -> Outcome:
    """Run one version; a console writes each line at once, also into a file."""
    console.print(f"Postgres {version} begins", highlight=False)
    outcome = _run(version, arguments)
    verdict = "holds" if outcome.holds else "fails"
    counts = f"{outcome.passed} passed, {outcome.failed} failed"
    console.print(f"Postgres {version} {verdict}: {counts}, {outcome.seconds:.0f} s", highlight=False)
    if not outcome.holds:
        console.print(outcome.output, markup=False, highlight=False)
    return outcome


def _run(version: str, arguments: list[str]) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "matrix", "-p", "no:cacheprovider", "-o", "addopts="]
        done = subprocess.run(
            [*command, "--strict-markers", "-ra", f"--junit-xml={report}", *arguments],
            env={**os.environ, "AFTERIMAGE_TEST_POSTGRES": version},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        passed, failed = _counted(report)
    return Outcome(version, passed, failed, time.monotonic() - began, done.returncode, done.stdout)


def _counted(report: Path) -> tuple[int, int]:
    """Passed and failed; a run that never came to its report counts as one failure."""
    if not report.exists():
        return 0, 1
    suites = list(ElementTree.parse(report).iter("testsuite"))
    total, bad = (sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures"))
    bad += sum(int(suite.get("errors", "0")) for suite in suites)
    return total - bad, bad


def _table(outcomes: list[Outcome]) -> Table:
    table = Table("Postgres", "passed", "failed", "seconds", "")
    for outcome in outcomes:
        verdict = "[green]holds[/]" if outcome.holds else "[red]fails[/]"
        table.add_row(outcome.version, str(outcome.passed), str(outcome.failed), f"{outcome.seconds:.0f}", verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
