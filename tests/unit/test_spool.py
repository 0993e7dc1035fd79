"""The spool's file: what is told when the disk is full or the folder is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import OperatorError
from cdc.spool import Spool


def test_payloads_larger_than_a_read_come_back(tmp_path):
    payloads = [b"", b"a" * (3 << 20), b"b", b"c" * (1 << 20), b""]
    spool = Spool(tmp_path, 10)
    for payload in payloads:
        spool.append(payload)
    assert spool.is_spilled
    assert list(spool) == payloads
    spool.close()
    spool.close()
    assert list(spool) == []


def test_a_folder_that_cannot_be_made_is_the_operators_business(tmp_path):
    (tmp_path / "file").touch()
    spool = Spool(tmp_path / "file" / "spool", 1)
    with pytest.raises(OperatorError) as raised:
        spool.append(b"payload")
    assert (raised.value.code, raised.value.exit_code) == ("SPILL", 3)


def test_a_full_disk_has_its_own_code(tmp_path, monkeypatch):
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115  the spool closes it
    monkeypatch.setattr("cdc.spool._nameless_file", lambda directory: full)
    spool = Spool(tmp_path, 1)
    with pytest.raises(OperatorError) as raised:
        spool.append(b"payload")
    assert raised.value.code == "DISK_FULL"
    assert str(tmp_path) in raised.value.message
    spool.close()
