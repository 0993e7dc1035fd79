"""An embedded OpenSearch: its home put together from jars, single node, loopback only, as another account if root.

In: a folder. Out: what to run and whether it serves. Indexes are made on purpose only, as topics are.
"""

from __future__ import annotations

import http.client
import json
import shutil
from pathlib import Path

from cdc.stack.account import give, own_folder, unprivileged
from cdc.stack.fetch import fetch
from cdc.stack.java import SHORT_LIVED, java_home
from cdc.stack.locks import Artifact, Lock, load
from cdc.stack.opensearch_modules import describe_modules
from cdc.stack.ports import HOST
from cdc.stack.process import Command
from cdc.stack.server import Ports
from cdc.stack.unpack import unpacked

PREFERRED_PORT = 29200
HEAP = "512m"
JAVA_BELOW = 24  # it needs the security manager, which Java 24 took away
LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
JVM = (
    f"-Xms{HEAP}",
    f"-Xmx{HEAP}",
    "-XX:+UseG1GC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-OmitStackTraceInFastThrow",
    "-Djava.security.manager=allow",
    "-Djava.locale.providers=SPI,COMPAT",
    "-Dfile.encoding=UTF-8",
    "-Dio.netty.noUnsafe=true",
    "-Dio.netty.noKeySetOptimization=true",
    "-Dio.netty.recycler.maxCapacityPerThread=0",
    "-Dio.netty.allocator.numDirectArenas=0",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Dlog4j2.disable.jmx=true",
    "-Dopensearch.distribution.type=tar",
    "-Dopensearch.bundled_jdk=false",
)


class OpenSearch:
    """One embedded node."""

    name = "opensearch"
    user: str | None = None
    password_file: Path | None = None

    def __init__(self, folder: Path, *, port: int = PREFERRED_PORT, short_lived: bool = False) -> None:
        self.folder = folder
        self.preferred: Ports = {"opensearch": port, "transport": port + 1 if port else 0}
        self._account = unprivileged()
        self._jvm = (*JVM, *SHORT_LIVED) if short_lived else JVM

    def artifacts(self) -> tuple[Artifact, ...]:
        """Its jars."""
        return load("opensearch").artifacts

    def prepare(self, ports: Ports) -> Command:
        """Fetch the jars, lay out the home, write the settings."""
        home = self._home()
        root = own_folder(self.folder / "data", self._account)
        config, temporary = root / "config", root / "tmp"
        for folder in (config, temporary, root / "nodes", root / "logs"):
            folder.mkdir(exist_ok=True)
            give(self._account, folder)
        self._configure(root, ports)
        java = java_home(self._account, JAVA_BELOW) / "bin" / "java"
        argv = [str(java), *self._jvm, f"-Djava.io.tmpdir={temporary}", f"-Dopensearch.path.home={home}"]
        argv += [f"-Dopensearch.path.conf={config}", "-cp", f"{home}/lib/*", "org.opensearch.bootstrap.OpenSearch"]
        return Command(argv, root, self._account)

    def why_not_ready(self, ports: Ports) -> str | None:
        """Ask for the cluster's health: yellow is all that one node can promise an index with replicas."""
        connection = http.client.HTTPConnection(HOST, ports["opensearch"], timeout=5)
        try:
            connection.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s")
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()
        return None if answer.status == http.HTTPStatus.OK else f"HTTP {answer.status}: {_status(body)}"

    def _home(self) -> Path:
        lock = load("opensearch")
        jars = fetch(lock.artifacts, what="OpenSearch")
        return unpacked(f"opensearch-{lock.digest}", self._account, lambda target: _lay_out(lock, jars, target))

    def _configure(self, root: Path, ports: Ports) -> None:
        # JSON is YAML, and quotes whatever a path may hold.
        settings = {
            "cluster.name": "afterimage",
            "node.name": "embedded",
            "discovery.type": "single-node",
            "network.host": HOST,
            "http.port": ports["opensearch"],
            "transport.port": ports["transport"],
            "path.data": str(root / "nodes"),
            "path.logs": str(root / "logs"),
            "action.auto_create_index": False,
            "cluster.routing.allocation.disk.threshold_enabled": False,
            "indices.breaker.total.use_real_memory": False,
        }
        for name, text in (("opensearch.yml", json.dumps(settings, indent=2)), ("log4j2.properties", LOG4J)):
            (root / "config" / name).write_text(text)
            give(self._account, root / "config" / name)


def _lay_out(lock: Lock, jars: list[Path], home: Path) -> None:
    for artifact, jar in zip(lock.artifacts, jars, strict=True):
        assert artifact.dest is not None, artifact.coordinates
        target = home / artifact.dest
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(jar, target)
    for name in ("bin", "plugins"):  # it would make them, were the home its own
        (home / name).mkdir()
    core = next(artifact for artifact in lock.artifacts if artifact.parts[1] == "opensearch")
    describe_modules(home / "modules", core.version)


def _status(body: bytes) -> str:
    try:
        return str(json.loads(body).get("status", "?"))
    except (ValueError, AttributeError):
        return "?"
