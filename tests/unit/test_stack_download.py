"""Fetching by coordinates, from a repository on the loopback: bytes counted, failures ours, relock writes sums."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import jgo.maven._core
import pytest

from cdc.errors import TransientError
from cdc.stack import locks, relock
from cdc.stack.download import download
from cdc.stack.locks import Artifact

# jgo leaves the answer that it gave up on to the garbage collector, which the fixture below runs.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

CONTENT = b"x" * 100_000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def copyfile(self, source, outputfile):
        content = source.read()
        outputfile.write(content[:50_000] if "cut" in self.path else content)


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Iterator[Path]:
    root = tmp_path / "repository"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    Thread(target=partial(server.serve_forever, 0.01), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(jgo.maven._core, "DEFAULT_REMOTE_REPOS", {"here": address})
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield root
    server.shutdown()
    server.server_close()
    gc.collect()


def artifact(coordinates: str) -> Artifact:
    return Artifact(coordinates=coordinates, sha256=hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT))


def offer(repository: Path, offered: Artifact) -> None:
    path = repository / offered.path
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)


@pytest.mark.parametrize("coordinates", ["org.example:tool:1.0", "org.example:tool:1.0:linux", "o:tool:1::zip"])
def test_fetches_by_coordinates_and_counts_the_bytes(tmp_path, repository, coordinates):
    wanted = artifact(coordinates)
    offer(repository, wanted)
    counted: list[int] = []
    path = download(wanted, tmp_path / "staging", counted.append)
    assert path == tmp_path / "staging" / wanted.path
    assert path.read_bytes() == CONTENT
    assert sum(counted) == len(CONTENT)


def test_what_is_not_there_is_said_by_name(tmp_path, repository):
    with pytest.raises(TransientError, match=r"cannot fetch org\.example:tool:1\.0: no repository gave it") as failed:
        download(artifact("org.example:tool:1.0"), tmp_path / "staging", lambda _: None)
    assert failed.value.code == "FETCH"


def test_a_connection_cut_halfway_is_said_by_name(tmp_path, repository):
    wanted = artifact("org.example:cut:1.0")
    offer(repository, wanted)
    with pytest.raises(TransientError, match=r"cannot fetch org\.example:cut:1\.0: "):
        download(wanted, tmp_path / "staging", lambda _: None)


def test_no_network_is_said_by_name(tmp_path, repository, monkeypatch):
    monkeypatch.setattr(jgo.maven._core, "DEFAULT_REMOTE_REPOS", {"here": "http://127.0.0.1:1"})
    with pytest.raises(TransientError, match="ConnectionError"):
        download(artifact("org.example:tool:1.0"), tmp_path / "staging", lambda _: None)


def test_relock_writes_what_came(tmp_path, repository, monkeypatch):
    monkeypatch.setattr(locks, "config_folder", lambda: tmp_path)
    (tmp_path / "locks").mkdir()
    entries = [{"coordinates": "org.example:tool:1.0", "dest": "lib/tool.jar"}]
    (tmp_path / "locks" / "k.json").write_text(json.dumps({"what": "test", "artifacts": entries}))
    offer(repository, artifact("org.example:tool:1.0"))
    assert relock.relock("k") == 1
    assert relock.relock("k") == 0
    [entry] = locks.load("k").artifacts
    assert (entry.sha256, entry.size, entry.dest) == (hashlib.sha256(CONTENT).hexdigest(), 100_000, "lib/tool.jar")
