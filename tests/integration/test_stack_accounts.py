"""Servers that refuse root start whoever we are: an ordinary user, root, root with its data in its home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pyspark
import pytest

import cdc
from cdc.stack import daemon
from cdc.stack.account import NOBODY
from cdc.stack.fetch import fetch
from cdc.stack.java import bundled_java_home, java_home
from cdc.stack.kafka import Kafka
from cdc.stack.locks import load
from cdc.stack.opensearch import OpenSearch
from cdc.stack.postgres import Postgres
from cdc.stack.spark import spark_classpath, spark_java_home
from tests.support.servers import sweep

# Everything is imported before root is given up, since an ordinary user may not be able to read where Python lies.
AS_ORDINARY_USER = """
import encodings.idna, encodings.unicode_escape, json, os, sys
from pathlib import Path
import psutil, psycopg
from cdc.stack import daemon
from cdc.stack.opensearch import OpenSearch
from cdc.stack.postgres import Postgres
from cdc.stack.spark import spark_classpath, spark_java_home
folder, uid = Path(sys.argv[1]), int(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(uid), os.setuid(uid)
found = {}
for server in (Postgres(folder / "postgres", port=0), OpenSearch(folder / "opensearch", port=0, short_lived=True)):
    endpoint = daemon.start(server)
    found[server.name] = psutil.Process(endpoint.process.pid).uids().real
    daemon.halt(server)
print(json.dumps(found))
"""


@pytest.fixture
def folder(servers_folder):
    made = servers_folder / f"accounts-{os.urandom(4).hex()}"
    made.mkdir(mode=0o755)
    yield made
    for inner in (made, *made.iterdir()):
        sweep(inner)


def test_an_ordinary_user_needs_nothing_but_its_own_folders(folder):
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    home, code = folder / "home", folder / "code"
    home.mkdir()
    root = Path(cdc.__file__).parent.parent
    shutil.copytree(root / "cdc", code / "cdc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / "config", code / "config")
    # Its own cache, filled from ours so that nothing is fetched twice.
    servers = (Postgres(folder / "x"), OpenSearch(folder / "x"))
    artifacts = [artifact for server in servers for artifact in server.artifacts()]
    for artifact, path in zip(artifacts, fetch(artifacts, what="servers"), strict=True):
        target = home / ".cache" / "afterimage" / "artifacts" / artifact.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for path in (home, *home.rglob("*")):
        os.chown(path, user, user if os.geteuid() == 0 else -1)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(code)}
    done = subprocess.run(
        [sys.executable, "-c", AS_ORDINARY_USER, str(home / "data"), str(user)],
        env=environment,
        cwd=code,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"postgres": user, "opensearch": user}


def test_servers_never_run_as_root(postgres, opensearch):
    for endpoint in (postgres.endpoint, opensearch):
        assert psutil.Process(endpoint.process.pid).uids().real != 0


def test_data_where_only_we_get_still_works(folder):
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    server = Postgres(closed / "data" / "postgres", port=0)
    endpoint = daemon.start(server)
    with psycopg.connect(server.conninfo(endpoint.ports)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    daemon.halt(server)
    cluster = (server.folder / "data").resolve()
    assert (cluster / "PG_VERSION").is_file()
    shutil.rmtree(cluster)


def test_kafka_and_opensearch_run_on_the_bundled_java(folder, monkeypatch):
    monkeypatch.setenv("AFTERIMAGE_JAVA", "bundled")
    for server in (
        Kafka(folder / "kafka", port=0, short_lived=True),
        OpenSearch(folder / "opensearch", port=0, short_lived=True),
    ):
        endpoint = daemon.start(server)
        program = psutil.Process(endpoint.process.pid).exe()
        assert program.endswith("/bin/java-real")
        daemon.halt(server)


def test_spark_takes_the_bundled_java_with_the_flag_that_it_does_not_know(monkeypatch):
    monkeypatch.setenv("AFTERIMAGE_JAVA", "bundled")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "JAVA_HOME": spark_java_home(), "SPARK_HOME": str(submit.parent.parent)}
    done = subprocess.run([str(submit), "--version"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"version {pyspark.__version__}" in done.stderr
    assert java_home() == bundled_java_home()


def test_spark_jars_are_all_there():
    jars = [Path(jar) for jar in spark_classpath().split(os.pathsep)]
    assert len(jars) == len(load("spark").artifacts)
    assert all(jar.is_file() for jar in jars)
