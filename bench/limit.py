"""The limit: what Postgres gives to a client of its own that writes everything to /dev/null.

A log is read by pg_recvlogical, a table by psql's COPY. The embedded Postgres does not bring them, so those that are
installed are taken (any version speaks to any server); where there are none, the limit is left out. Their start, some
hundredths of a second, is in the time.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass

from bench.result import Run

SIDE = "limit"
PROGRAM = "pg_recvlogical"
COPIER = "psql"


@dataclass(frozen=True, slots=True)
class Log:
    """A slot's log, to be read up to `end_lsn`, which holds so many changes."""

    conninfo: str
    slot: str
    publication: str
    end_lsn: str
    changes: int


def is_there() -> bool:
    """Whether the limit can be measured on this machine."""
    return shutil.which(PROGRAM) is not None and shutil.which(COPIER) is not None


def run_limit(log: Log) -> Run:
    """Read it, and throw it away."""
    words = f"--start --no-loop --fsync-interval=0 --file=/dev/null --endpos={log.end_lsn}".split()
    words += [f"--dbname={log.conninfo}", f"--slot={log.slot}"]
    words += ["--option=proto_version=1", f"--option=publication_names={log.publication}"]
    return _run(PROGRAM, words, log.changes)


def run_copy(conninfo: str, table: str, rows: int) -> Run:
    """Copy a table of so many rows, and throw it away."""
    words = ["--no-psqlrc", "--quiet", f"--dbname={conninfo}", "--output=/dev/null"]
    return _run(COPIER, [*words, f"--command=COPY {table} TO STDOUT"], rows)


def _run(name: str, words: list[str], count: int) -> Run:
    program = shutil.which(name)
    assert program is not None
    began = time.monotonic()
    pid = os.posix_spawn(program, [program, *words], os.environ)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    assert os.waitstatus_to_exitcode(status) == 0, f"{name} failed"
    return Run(SIDE, count / seconds, usage.ru_utime + usage.ru_stime, 0.0, usage.ru_maxrss / 1024)
