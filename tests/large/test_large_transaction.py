"""A transaction of two gigabytes: `make test-large`; AFTERIMAGE_LARGE_MB says another size."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cdc.settings import Kafka, Settings
from tests.support.large import run_large_transaction, with_small_work_memory

MEGABYTES = int(os.environ.get("AFTERIMAGE_LARGE_MB", "2048"))
MEMORY_MB_MAX = 300


@pytest.mark.timeout(3600)
def test_a_transaction_of_two_gigabytes(
    source: Settings, admin: Any, kafka: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_small_work_memory(source, admin)
    # While it is open the slot keeps all that is written: more than a test's server is set to keep.
    admin.execute("ALTER SYSTEM SET max_slot_wal_keep_size = -1")
    admin.execute("SELECT pg_reload_conf()")
    settings = source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})
    figures = run_large_transaction(settings, tmp_path, MEGABYTES)
    with capsys.disabled():
        sys.stdout.write(f"\n{figures}\n")
    assert figures.peak_rss_mb < MEMORY_MB_MAX
