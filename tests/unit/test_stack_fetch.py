"""Fetching: what arrives is verified, interruptions cost nothing that was whole, and nothing else ever gets a name."""

from __future__ import annotations

import hashlib
import io
import threading
from pathlib import Path

import pytest
import stamina
from rich.console import Console

from cdc.errors import OperatorError, TransientError
from cdc.stack.fetch import fetch
from cdc.stack.locks import Artifact


def artifact(name: str, content: bytes) -> Artifact:
    return Artifact(
        coordinates=f"org.example:{name}:1.0", sha256=hashlib.sha256(content).hexdigest(), size=len(content)
    )


class Repository:
    """Stands for the network: files by artifact name, and what it was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.failures: dict[str, list[BaseException]] = {}
        self.cut: dict[str, int] = {}

    def __call__(self, artifact: Artifact, folder: Path, on_bytes):
        name = artifact.parts[1]
        self.asked.append(name)
        content = self.files[name][: self.cut.pop(name, None)]
        target = folder / artifact.path
        target.parent.mkdir(parents=True)
        half = len(content) // 2
        target.write_bytes(content[:half])
        on_bytes(half)
        if self.failures.get(name):
            raise self.failures[name].pop()
        target.write_bytes(content)
        on_bytes(len(content) - half)
        return target


@pytest.fixture
def repository():
    return Repository({"a": b"first", "b": b"second", "c": b"third"})


@pytest.fixture
def artifacts(repository):
    return [artifact(name, content) for name, content in repository.files.items()]


@pytest.fixture(autouse=True)
def _no_backoff():
    with stamina.set_testing(True, attempts=3):
        yield


def fetched(tmp_path):
    return sorted(path.name for path in tmp_path.rglob("*.jar"))


def test_fetches_in_order_and_only_once(tmp_path, repository, artifacts):
    paths = fetch(artifacts, what="test", cache=tmp_path, downloader=repository)
    assert [path.read_bytes() for path in paths] == [b"first", b"second", b"third"]
    assert fetch(artifacts, what="test", cache=tmp_path, downloader=repository) == paths
    assert sorted(repository.asked) == ["a", "b", "c"]


def test_a_wrong_checksum_is_refused_by_name_and_not_kept(tmp_path, repository, artifacts):
    repository.files["b"] = b"evil!!"
    with pytest.raises(OperatorError) as refused:
        fetch(artifacts, what="test", cache=tmp_path, downloader=repository)
    assert "org.example:b:1.0" in refused.value.message
    assert artifacts[1].sha256 in refused.value.message
    assert hashlib.sha256(b"evil!!").hexdigest() in refused.value.message
    assert refused.value.code == "CHECKSUM"
    assert "relock" in (refused.value.hint or "")
    assert "b-1.0.jar" not in fetched(tmp_path)


def test_goes_on_where_it_was_interrupted(tmp_path, repository, artifacts):
    repository.failures["c"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        fetch(artifacts, what="test", cache=tmp_path, downloader=repository)
    kept = fetched(tmp_path)
    assert "c-1.0.jar" not in kept
    repository.asked.clear()
    fetch(artifacts, what="test", cache=tmp_path, downloader=repository)
    assert sorted(repository.asked) == sorted({"a", "b", "c"} - {name[0] for name in kept})
    assert fetched(tmp_path) == ["a-1.0.jar", "b-1.0.jar", "c-1.0.jar"]
    assert not list(tmp_path.rglob(".staging-*"))


def test_what_a_killed_process_left_is_swept_away(tmp_path, repository, artifacts):
    left = tmp_path / "artifacts" / ".staging-killed" / "half.jar"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"ha")
    fetch(artifacts, what="test", cache=tmp_path, downloader=repository)
    assert not left.exists()


def test_tries_again_after_a_network_error_or_a_short_file(tmp_path, repository, artifacts):
    repository.failures["a"] = [TransientError("reset", "again")]
    repository.cut["b"] = 3
    fetch(artifacts, what="test", cache=tmp_path, downloader=repository)
    assert sorted(repository.asked) == ["a", "a", "b", "b", "c"]


def test_gives_up_with_what_the_network_said(tmp_path, repository, artifacts):
    repository.failures["a"] = [TransientError("cannot fetch", "check the network")] * 9
    with pytest.raises(TransientError, match="cannot fetch"):
        fetch(artifacts, what="test", cache=tmp_path, downloader=repository)


@pytest.mark.parametrize("damage", [b"", b"fir", b"fIrst", b"first and more"])
def test_a_damaged_file_in_the_cache_is_fetched_again(tmp_path, repository, artifacts, damage):
    path = fetch(artifacts[:1], what="test", cache=tmp_path, downloader=repository)[0]
    path.write_bytes(damage)
    assert fetch(artifacts[:1], what="test", cache=tmp_path, downloader=repository)[0].read_bytes() == b"first"


def test_two_at_once_fetch_each_file_once(tmp_path, repository, artifacts):
    def go() -> None:
        fetch(artifacts, what="test", cache=tmp_path, downloader=repository)

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(repository.asked) == ["a", "b", "c"]


def test_shows_bytes_and_never_counts_a_failed_attempt(tmp_path, repository, artifacts):
    repository.failures["a"] = [TransientError("reset")]
    screen = io.StringIO()
    console = Console(file=screen, width=100, force_terminal=False)
    fetch(artifacts, what="Some servers", cache=tmp_path, downloader=repository, console=console)
    assert "Some servers" in screen.getvalue()
    assert "16/16 bytes" in screen.getvalue()
