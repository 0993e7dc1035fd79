"""The spool's file: what is told when the disk is full or the folder is not ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdc.errors import OperatorError
from cdc.spool import SpoolStore
from cdc.spool_file import EXTENT_BYTES


def test_payloads_larger_than_a_read_come_back(tmp_path):
    payloads = [b"", b"a" * (3 << 20), b"b", b"c" * (1 << 20), b""]
    spool = SpoolStore(tmp_path, 10).open()
    for payload in payloads:
        spool.append(payload)
    assert spool.is_spilled
    assert list(spool) == payloads
    spool.close()
    spool.close()
    assert list(spool) == []


def test_a_folder_that_cannot_be_made_is_the_operators_business(tmp_path):
    (tmp_path / "file").touch()
    spool = SpoolStore(tmp_path / "file" / "spool", 1).open()
    with pytest.raises(OperatorError) as raised:
        spool.append(b"payload")
    assert (raised.value.code, raised.value.exit_code) == ("SPILL", 3)


def test_a_full_disk_has_its_own_code(tmp_path, monkeypatch):
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115  the spool closes it
    monkeypatch.setattr("cdc.spool_file._nameless_file", lambda directory: full)
    spool = SpoolStore(tmp_path, 1).open()
    with pytest.raises(OperatorError) as raised:
        spool.append(b"payload")
    assert raised.value.code == "DISK_FULL"
    assert str(tmp_path) in raised.value.message
    spool._store.file.close()
    spool.close()


def test_all_spools_together_stay_within_the_limit_and_share_one_file(tmp_path):
    store = SpoolStore(tmp_path, 10_000)
    spools = [store.open() for _ in range(300)]
    for number in range(40):
        for spool in spools:
            spool.append(b"%d" % number * 20)
            assert store.memory_bytes <= 10_000
    open_files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]  # noqa: PTH115
    assert len([name for name in open_files if name.startswith(str(tmp_path))]) == 1
    assert all(list(spool) == [b"%d" % number * 20 for number in range(40)] for spool in spools)
    store.close()
    assert (store.memory_bytes, store.file.is_open) == (0, False)


@pytest.mark.parametrize("memory", [1 << 30, 3000, 1], ids=["in memory", "partly on disk", "on disk"])
def test_what_is_cut_is_gone_and_its_place_is_used_again(tmp_path, memory):
    store = SpoolStore(tmp_path, memory)
    spool, other = store.open(), store.open()
    payloads = [b"%d" % number * 1000 for number in range(400)]
    marks = []
    for payload in payloads:
        marks.append(spool.size_bytes)
        spool.append(payload)
    spool.cut(marks[300])
    spool.cut(marks[300])
    assert list(spool) == payloads[:300]
    other.append(b"x" * EXTENT_BYTES)
    spool.cut(marks[7])
    spool.append(b"next")
    assert list(spool) == [*payloads[:7], b"next"]
    assert list(other) == [b"x" * EXTENT_BYTES]
    spool.cut(0)
    assert list(spool) == []
    other.close()
    assert store.memory_bytes == spool.held_bytes == 0
    assert not store.file.is_open
