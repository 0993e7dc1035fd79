"""The limit: what Postgres's walsender gives to a reader that throws every frame away.

Stands in for pg_recvlogical, which the embedded Postgres does not bring: libpq's COPY BOTH, no decoding, no output.
Runs as a process of its own: `python -m bench.limit CONFIG SLOT PUBLICATION END_LSN`, prints JSON.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time

from psycopg import pq

from bench.result import Run
from bench.usage import cpu_seconds, peak_mb

SIDE = "limit"


def read_away(conninfo: str, slot: str, publication: str, changes: int) -> dict[str, float]:
    """Read until so many changes have come; the clock starts at the first."""
    pg = pq.PGconn.connect(conninfo.encode())
    assert pg.status == pq.ConnStatus.OK, pg.error_message
    options = f"(proto_version '1', publication_names '{publication}')"
    result = pg.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 {options}".encode())
    assert result.status == pq.ExecStatus.COPY_BOTH, result.error_message
    pg.nonblocking = 1
    seen, began = 0, 0.0
    while seen < changes:
        length, data = pg.get_copy_data(1)
        if length == 0:
            select.select([pg.socket], [], [])
            pg.consume_input()
            continue
        assert length > 0, "the server ended the stream"
        if data[0] == ord("w") and data[25] in b"IUD":
            began = began or time.monotonic()
            seen += 1
    return {"seconds": time.monotonic() - began}


def run_limit(conninfo: str, slot: str, publication: str, changes: int) -> Run:
    """In a process of its own."""
    argv = [sys.executable, "-m", "bench.limit", conninfo, slot, publication, str(changes)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    body = json.loads(done.stdout)
    return Run(SIDE, changes / body["seconds"], body["cpu_s"], 0.0, body["peak_mb"])


def main() -> None:
    """For the process."""
    conninfo, slot, publication, changes = sys.argv[1:]
    body = read_away(conninfo, slot, publication, int(changes))
    pid = os.getpid()
    sys.stdout.write(json.dumps({**body, "cpu_s": cpu_seconds(pid), "peak_mb": peak_mb(pid)}))


if __name__ == "__main__":
    main()
