"""Folders: what cannot be written, and what is nearly full."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from cdc.check.finding import Level
from cdc.check.folders import look_at_folders
from cdc.settings import Delta, Settings, Source

Usage = namedtuple("Usage", "total used free")


def settings_for(data, delta):
    source = Source(database="unused", tables=("public.*",))
    return Settings(pipeline="folders", source=source, data=data, delta=Delta(path=str(delta)))


def test_folders_that_are_not_there_yet_are_right(tmp_path):
    found = look_at_folders(settings_for(tmp_path / "a" / "b", tmp_path / "c"))
    assert [each.level for each in found] == [Level.OK]


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("")
    [found] = look_at_folders(settings_for(tmp_path / "file" / "data", "s3://bucket/delta"))
    assert (found.code, found.level) == ("FOLDER", Level.CRITICAL)
    assert found.message.startswith("data: ")


@pytest.mark.parametrize(("free", "level"), [(1 << 20, Level.CRITICAL), (1 << 30, Level.WARNING)])
def test_a_disk_that_is_nearly_full(tmp_path, monkeypatch, free, level):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, free))
    found = look_at_folders(settings_for(tmp_path, "s3://bucket/delta"))
    assert [(each.code, each.level) for each in found] == [("DISK", level)]
