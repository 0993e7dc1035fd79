"""The limit: what Postgres's walsender gives to pg_recvlogical, which writes every frame to /dev/null.

The embedded Postgres does not bring it, so one that is installed is taken (any version speaks to any server); where
there is none, the limit is left out. Its start, some hundredths of a second, is in the time.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass

from bench.result import Run

SIDE = "limit"
PROGRAM = "pg_recvlogical"


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
    return shutil.which(PROGRAM) is not None


def run_limit(log: Log) -> Run:
    """Read it, and throw it away."""
    program = shutil.which(PROGRAM)
    assert program is not None
    words = f"--start --no-loop --fsync-interval=0 --file=/dev/null --endpos={log.end_lsn}".split()
    argv = [program, f"--dbname={log.conninfo}", f"--slot={log.slot}", *words]
    argv += ["--option=proto_version=1", f"--option=publication_names={log.publication}"]
    began = time.monotonic()
    pid = os.posix_spawn(program, argv, os.environ)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    assert os.waitstatus_to_exitcode(status) == 0, f"{PROGRAM} failed"
    return Run(SIDE, log.changes / seconds, usage.ru_utime + usage.ru_stime, 0.0, usage.ru_maxrss / 1024)
