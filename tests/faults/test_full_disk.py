"""A full disk: one clear message and the right code, nothing lost, and it goes on once there is space again.

A limit on the size of a process's files stands for the disk: everybody may set it, and the same writes fail.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from cdc.settings import Kafka, Settings
from cdc.stack.server import Endpoint
from tests.support.capturing import RunningCapture, insert_lsn
from tests.support.equal import Copies
from tests.support.processes import Command, write_config

LIMIT_BYTES = 512 << 10


def test_capture_stops_when_a_large_transaction_does_not_fit_and_goes_on_later(
    source: Settings, kafka: Endpoint, admin: Any, tmp_path: Path
) -> None:
    small = source.capture.model_copy(update={"spill_bytes": 1 << 20})
    settings = source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address), "capture": small})
    capture = Command(write_config(settings, tmp_path), ("capture",), tmp_path / "capture.log").start()
    assert capture.process is not None
    RunningCapture(settings).wait_for(insert_lsn(admin))
    resource.prlimit(capture.process.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
    admin.execute("INSERT INTO public.orders SELECT g, repeat('x', 1000), 1 FROM generate_series(1, 4000) g")
    assert capture.process.wait(60) == 3
    said = capture.text()
    assert "DISK_FULL" in said
    assert str(settings.data / "spool") in said
    assert "Traceback" not in said
    capture.start()
    try:
        RunningCapture(settings).wait_for(insert_lsn(admin))
        assert Copies(settings).differences() == []
    finally:
        capture.stop()


CHILD = """
import resource, sys
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from cdc.errors import CdcError
from sinks.delta.commit import Commit
from sinks.delta.direct import merge_directly
from sinks.delta.stamp import Stamp
from sinks.protocol import OP, Position

path, limit = sys.argv[1], int(sys.argv[2])
schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
write_deltalake(path, pa.table({"id": [0], "body": ["before"]}, schema=schema))
rows = pa.table({"id": list(range(1, 4001)), "body": [str(n) * 100 for n in range(4000)], OP: ["u"] * 4000})
commit = Commit(path, Stamp("orders", 1, "f", Position(7, 7, {})), "shop/orders", 1, None)

def write():
    try:
        merge_directly(rows, commit, ("id",), {})
    except CdcError as error:
        return type(error).__name__, error.code
    return "written", DeltaTable(path).count()

resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
print(*write(), DeltaTable(path).count())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(*write())
"""


def test_a_batch_that_does_not_fit_is_tried_again_and_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    for name, limit in (("rows", 20_000), ("log", 600)):
        child = [sys.executable, "-c", CHILD, str(tmp_path / name), str(limit)]
        done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout.splitlines() == ["TransientError DISK_FULL 1", "written 4001"], done.stderr
