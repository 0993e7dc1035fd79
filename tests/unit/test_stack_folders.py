"""Folders, accounts, passwords, unpacking and Java: what lies where, readable by whom."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from cdc.errors import OperatorError
from cdc.stack import account, java, unpack
from cdc.stack.account import own_folder, reaches, shared_folder, unprivileged
from cdc.stack.cache import cache_folder
from cdc.stack.secret import password
from cdc.stack.unpack import tar_in_jar, unpacked


@pytest.fixture
def open_path(tmp_path_factory):
    """A folder that every account can walk to."""
    base = tmp_path_factory.mktemp("open")
    for folder in (base, *base.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    return base


def test_a_password_is_made_once_and_only_its_owner_reads_it(tmp_path):
    path = tmp_path / "server" / "password"
    first = password(path)
    assert len(first) >= 32
    assert password(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AFTERIMAGE_CACHE_DIR": "/x/cache", "XDG_CACHE_HOME": "/y"}, "/x/cache"),
        ({"XDG_CACHE_HOME": "/y"}, "/y/afterimage"),
        ({"HOME": "/h"}, "/h/.cache/afterimage"),
    ],
)
def test_the_cache_is_where_the_environment_says(monkeypatch, environment, expected):
    for name in ("AFTERIMAGE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_servers_own_their_folder(open_path):
    folder = own_folder(open_path / "data", unprivileged())
    assert folder == open_path / "data"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    who = unprivileged()
    assert folder.stat().st_uid == (who.uid if who else os.geteuid())


@pytest.fixture
def closed(open_path, monkeypatch):
    """A folder that only we can enter, as root's home is, and a system folder that all can."""
    system = open_path / "system"
    monkeypatch.setattr(account, "SYSTEM_FOLDERS", (system,))
    folder = open_path / "closed"
    folder.mkdir(mode=0o700)
    # Whoever we are: an account that cannot enter.
    monkeypatch.setattr(account, "reaches", lambda _, path: not path.is_relative_to(folder))
    return folder, system


def test_a_data_folder_out_of_reach_becomes_a_link(closed):
    folder, system = closed
    found = own_folder(folder / "data", None)
    assert found.parent == system
    assert (folder / "data").resolve() == found
    assert own_folder(folder / "data", None) == found
    (folder / "data").unlink()
    assert own_folder(folder / "data", None) != found, "another cluster's data is never taken for ours"


def test_a_dangling_link_is_replaced(closed):
    folder, _ = closed
    found = own_folder(folder / "data", None)
    found.rmdir()
    assert own_folder(folder / "data", None).is_dir()


def test_a_cache_out_of_reach_is_unpacked_elsewhere(closed):
    folder, system = closed
    assert shared_folder(folder / "unpacked", None) == system / "unpacked"


def test_no_folder_in_reach_is_said_clearly(closed, monkeypatch):
    folder, _ = closed
    monkeypatch.setattr(account, "SYSTEM_FOLDERS", (folder / "system",))
    with pytest.raises(OperatorError, match="cannot reach") as refused:
        own_folder(folder / "data", None)
    assert "AFTERIMAGE_CACHE_DIR" in (refused.value.hint or "")


def test_a_system_folder_that_is_somebody_elses_link_is_not_trusted(closed, tmp_path):
    folder, system = closed
    system.symlink_to(tmp_path)
    with pytest.raises(OperatorError, match="cannot reach"):
        own_folder(folder / "data", None)


def test_reach_is_asked_of_the_kernel(open_path):
    who = unprivileged()
    assert reaches(who, open_path)
    assert not reaches(who, open_path / "missing")


def test_unpacks_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("AFTERIMAGE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(unpack, "shared_folder", lambda preferred, _: preferred)

    def interrupted(target: Path) -> None:
        (target / "half").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpacked("server-1", None, interrupted)
    assert not list((tmp_path / "unpacked").glob("*server-1*"))
    found = unpacked("server-1", None, lambda target: (target / "whole").touch())
    assert [path.name for path in found.iterdir()] == ["whole"]
    assert unpacked("server-1", None, interrupted) == found


def test_an_archive_cannot_write_outside(tmp_path):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as tar:
        tar.addfile(tarfile.TarInfo("../escaped"))
    with zipfile.ZipFile(tmp_path / "x.jar", "w") as jar:
        jar.writestr("postgres.txz", inner.getvalue())
    with pytest.raises(tarfile.OutsideDestinationError):
        tar_in_jar(tmp_path / "x.jar", tmp_path / "target")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "below", "taken"),
    [("17", 1000, True), ("21", 24, True), ("25", 24, False), ("11", 1000, False), ("1.8", 1000, False)],
)
def test_a_java_is_taken_by_its_version(tmp_path, monkeypatch, version, below, taken):
    binary = script(
        tmp_path / "bin" / "java",
        f'echo "    java.home = {tmp_path}" >&2; echo "    java.specification.version = {version}" >&2',
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("AFTERIMAGE_JAVA", raising=False)
    monkeypatch.setattr(java, "bundled_java_home", lambda: Path("/bundled"))
    java._home_of.cache_clear()
    assert java.java_home(below=below) == (tmp_path if taken else Path("/bundled"))
    assert binary.exists()


def test_without_any_java_the_bundled_one_is_taken(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(java, "bundled_java_home", lambda: Path("/bundled"))
    assert java.java_home() == Path("/bundled")


def test_the_wrapper_drops_the_one_flag_and_keeps_every_other_word(tmp_path):
    script(tmp_path / "bin" / "java-real", 'for word do echo "[$word]"; done')
    wrapper = tmp_path / "bin" / "java"
    wrapper.write_text(java.WRAPPER)
    wrapper.chmod(0o755)
    words = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "it's", "$HOME", "-x"]
    answer = subprocess.run([str(wrapper), *words], capture_output=True, text=True, check=True).stdout
    assert answer.splitlines() == [f"[{word}]" for word in words if not word.startswith("--add-modules")]
