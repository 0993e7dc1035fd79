"""A writer of a Delta table that is killed, whichever way it writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import sinks.delta.marked
from cdc.settings import Delta
from sinks.delta import DeltaSink
from sinks.protocol import DELETE, UPSERT
from tests.support.sinks import ORDERS, at
from tests.support.wait import wait_until

CHILD = """
import os
import sys
from pathlib import Path
from cdc.settings import Delta, Settings
from jobs.session import spark_session
import sinks.delta.marked
from sinks.delta import DeltaSink
from sinks.protocol import AT, LSN, OP
from tests.support.sinks import ORDERS, at

folder, data, parent, marks = sys.argv[1:]
sinks.delta.marked.TABLE_BYTES_MIN = 0
settings = Settings.model_validate({"pipeline": "shop", "source": {"database": "d", "tables": ["a.*"]}, "data": data,
    "apply": {"master": "local[1]", "spark": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}}})
spark = spark_session(settings, "child")
sink = DeltaSink(Delta(path=folder, deletion_vectors=marks == "marks"), "shop", ORDERS.spec)
sink.position()
for number in range(1, 1000):
    if os.getppid() != int(parent):
        break
    rows = [(1, f"batch {number}", None, "u", 7, "t@0:1"), (10 + number, "new", None, "u", 7, "t@0:1"),
            (9 + number, None, None, "d", 7, "t@0:1")]
    kinds = f"id bigint, name string, price decimal(10,2), {OP} string, {LSN} bigint, {AT} string"
    frame = spark.createDataFrame(rows, kinds)
    sink.write(frame, at(100 + number))
"""


@pytest.mark.parametrize("marks", ["files", "marks"])
def test_a_killed_writer_leaves_whole_batches_and_its_last_one_can_be_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marks: str
):
    """SIGKILL at no chosen moment; whoever comes next finds the batch there or not, never a part of it."""
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0)

    def make() -> DeltaSink:
        return DeltaSink(Delta(path=str(tmp_path), deletion_vectors=marks == "marks"), "shop", ORDERS.spec)

    def frame(*changes: tuple[str, tuple[Any, ...]]) -> DataFrame:
        return ORDERS.frame(spark, [(op, 7, row) for op, row in changes])

    sink = make()
    sink.replace(frame(*((UPSERT, (number, f"n{number}", None)) for number in range(10))), at(100))
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-c", CHILD, str(tmp_path), str(tmp_path / "child"), str(os.getpid()), marks]
    with subprocess.Popen(argv, cwd=root, start_new_session=True, stderr=subprocess.DEVNULL) as child:
        try:
            wait_until(lambda: sink.position().lsn >= 104, timeout_s=240, what="the child's fourth batch")
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    position = sink.position()
    number = position.lsn - 100
    expected = {0, 1, *range(2, 10)} | {10 + number}
    assert set(rows(sink)) == expected
    assert rows(sink)[1][1] == f"batch {number}"
    version = sink.version()
    again = frame((UPSERT, (1, f"batch {number}", None)), (UPSERT, (10 + number, "new", None)), (DELETE, (9 + number,)))
    make().write(again, position)
    assert sink.version() == version
    make().write(frame((DELETE, (10 + number,))), at(position.lsn + 1))
    assert set(rows(sink)) == set(range(10))


def rows(sink: DeltaSink) -> dict[Any, tuple[Any, ...]]:
    found = list(sink.rows())
    by_key = {row[0]: row for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key
