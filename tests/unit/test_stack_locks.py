"""Lock files: all of ours are whole and name no host; a broken one is refused by name."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from cdc.errors import ConfigError, OperatorError
from cdc.stack import locks, spark
from cdc.stack.locks import Artifact, Lock, config_folder, load, lock_path, this_platform

NAMES = ("kafka", "opensearch", "postgres", "spark")


@pytest.mark.parametrize("name", NAMES)
def test_every_lock_is_valid_and_has_no_host(name):
    lock = load(name)
    assert lock.artifacts
    assert len({artifact.path for artifact in lock.artifacts}) == len(lock.artifacts)
    assert "//" not in lock_path(name).read_text()


def test_postgres_is_known_for_every_major_on_linux():
    known = {(artifact.platform, artifact.major) for artifact in load("postgres").artifacts}
    assert {("linux-amd64", major) for major in (14, 15, 16, 17, 18)} <= known
    assert {(platform, 17) for platform in locks.PLATFORMS.values()} <= known


def test_opensearch_says_where_each_jar_goes():
    assert all(artifact.dest and ".." not in artifact.dest for artifact in load("opensearch").artifacts)


@pytest.mark.parametrize(
    ("coordinates", "path"),
    [
        ("a.b:c:1", "a/b/c/1/c-1.jar"),
        ("a.b:c:1:linux", "a/b/c/1/c-1-linux.jar"),
        ("a.b:c:1:linux:zip", "a/b/c/1/c-1-linux.zip"),
        ("a.b:c:1::pom", "a/b/c/1/c-1.pom"),
    ],
)
def test_coordinates_become_a_path(coordinates, path):
    assert Artifact(coordinates=coordinates, sha256="0" * 64, size=1).path.as_posix() == path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "config_folder", lambda: tmp_path)
    (tmp_path / "locks").mkdir()
    return tmp_path / "locks"


def test_a_missing_lock_is_refused_by_name(folder):
    with pytest.raises(ConfigError, match=r"nowhere\.json is missing"):
        load("nowhere")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"sha256": "abc"}, "sha256"),
        ({"size": 0}, "size"),
        ({"coordinates": "../../etc"}, "coordinates"),
        ({"x": 1}, "x"),
    ],
)
def test_a_broken_lock_is_refused_by_place(folder, change, where):
    entry = {"coordinates": "a:b:1", "sha256": "0" * 64, "size": 1} | change
    (folder / "k.json").write_text(json.dumps({"what": "test", "artifacts": [entry]}))
    with pytest.raises(ConfigError, match=rf"k\.json is not valid at artifacts\.0\.{where}") as refused:
        load("k")
    assert "relock k" in (refused.value.hint or "")


def test_a_changed_artifact_changes_the_digest():
    one = Lock(what="x", artifacts=(Artifact(coordinates="a:b:1", sha256="0" * 64, size=1),))
    two = Lock(what="x", artifacts=(Artifact(coordinates="a:b:1", sha256="1" * 64, size=1),))
    assert one.digest != two.digest


def test_this_machine_has_a_platform():
    assert this_platform() in locks.PLATFORMS.values()


def test_an_unknown_platform_is_said(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(OperatorError, match="riscv64"):
        this_platform()


def test_spark_jars_for_another_pyspark_are_refused(monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(spark, "version", lambda name: "4.9.9" if name == "pyspark" else real(name))
    with pytest.raises(OperatorError, match=r"spark.json is out of date: .* pyspark 4\.2\.0, installed is 4\.9\.9"):
        spark.spark_classpath()


def test_the_lock_fits_what_is_installed():
    assert all(importlib.metadata.version(name) == wanted for name, wanted in load("spark").requires.items())


def test_the_configuration_is_found():
    assert (config_folder() / "requirements" / "java.txt").is_file()
