"""TLS to Postgres: whom we trust, whom it trusts, and one error with its remedy for each way that fails."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import CdcError
from cdc.postgres import connect
from cdc.replication import ReplicationConnection
from cdc.settings import Role, Source
from cdc.stack.account import give, unprivileged
from cdc.stack.postgres import Postgres
from tests.support.certificates import DAY, Authority, Pair
from tests.support.servers import Database, PostgresServer, PrivateServer
from tests.support.wait import wait_until

pytestmark = pytest.mark.matrix
HOST_NAME = "localhost"


@dataclass
class Encrypted:
    """A Postgres that speaks TLS, and the authority that it and its clients trust."""

    database: Database
    cluster: Path
    authority: Authority

    def present(self, pair: Pair) -> None:
        """Show this certificate from now on."""
        shown = self._shown()
        self._place("server.crt", pair.certificate.read_text())
        self._place("server.key", pair.key.read_text())
        self._place("root.crt", self.authority.certificate.read_text())
        self.set(ssl="on", ssl_ca_file="root.crt")
        wait_until(lambda: self._shown() not in (None, shown), what="the new certificate")

    def set(self, **settings: str) -> None:
        with self.database.connect() as admin:
            for name, value in settings.items():
                admin.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            admin.execute("SELECT pg_reload_conf()")

    def let_in(self, *lines: str) -> None:
        """Put these before the lines of pg_hba.conf."""
        file = self.cluster / "pg_hba.conf"
        file.write_text("\n".join([*lines, file.read_text()]))
        self.set()

    def source(self, **changes: Any) -> Source:
        """Verified in full, with the superuser's login for both roles."""
        role = Role(user=self.database.user, password=self.database.password)
        return Source(
            **{
                "host": HOST_NAME,
                "port": self.database.port,
                "database": self.database.dbname,
                "tables": ("public.*",),
                "sslmode": "verify-full",
                "sslrootcert": self.authority.certificate,
                "read": role,
                **changes,
            }
        )

    def _place(self, name: str, text: str) -> None:
        file = self.cluster / name
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_text(text)
        give(unprivileged(), file)

    def _shown(self) -> bytes | None:
        return _certificate_of(self.database.port)


def _certificate_of(port: int) -> bytes | None:
    """What the server shows now, trusted or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 5) as plain:
        plain.sendall(struct.pack(">II", 8, 80877103))
        if plain.recv(1) != b"S":
            return None
        with context.wrap_socket(plain) as wrapped:
            return wrapped.getpeercert(binary_form=True)


@pytest.fixture
def encrypted(private_server: Callable[..., PrivateServer], tmp_path: Path) -> Encrypted:
    server = private_server(Postgres)
    authority = Authority(tmp_path / "ca")
    made = Encrypted(PostgresServer(server.endpoint).database(), (server.server.folder / "data").resolve(), authority)
    made.present(authority.issue("postgres", HOST_NAME))
    return made


def refused(source: Source, role: Role | None = None) -> CdcError:
    """The one error that both kinds of connection raise."""
    role = role or source.read
    with pytest.raises(CdcError) as raised:
        connect(source, role).close()
    with pytest.raises(CdcError) as as_walsender:
        ReplicationConnection(source, role)
    assert as_walsender.value.code == raised.value.code
    assert raised.value.hint
    return raised.value


def test_only_the_right_server_is_trusted(encrypted: Encrypted, tmp_path: Path) -> None:
    source = encrypted.source()
    with connect(source, source.read) as session:
        used = session.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
        assert used == (True,)
    ReplicationConnection(source, source.read).close()

    stranger = Authority(tmp_path / "other", "Another authority").certificate
    error = refused(encrypted.source(sslrootcert=stranger))
    assert error.code == "TLS_UNTRUSTED"
    assert "source.sslrootcert" in error.hint
    by_number = encrypted.source(host="127.0.0.1")
    error = refused(by_number)
    assert error.code == "TLS_HOST_NAME"
    assert "127.0.0.1" in error.message
    connect(by_number.model_copy(update={"sslmode": "verify-ca"}), source.read).close()

    absent, empty = tmp_path / "absent.pem", tmp_path / "empty.pem"
    empty.write_text("no certificate\n")
    for file in (absent, empty):
        error = refused(encrypted.source(sslrootcert=file))
        assert error.code == "TLS_FILE"
        assert str(file) in error.message
    encrypted.present(encrypted.authority.issue("postgres", HOST_NAME, lasts=-DAY))
    error = refused(source)
    assert error.code == "TLS_EXPIRED"
    assert "renew" in error.hint


def test_a_role_may_have_to_show_a_certificate(encrypted: Encrypted, tmp_path: Path) -> None:
    encrypted.let_in(f"hostssl all {encrypted.database.user} 127.0.0.1/32 scram-sha-256 clientcert=verify-full")
    source = encrypted.source()

    def role(pair: Pair) -> Role:
        return source.read.model_copy(update={"sslcert": pair.certificate, "sslkey": pair.key})

    right = encrypted.authority.issue(encrypted.database.user)
    open_to_all = encrypted.authority.issue(encrypted.database.user)
    open_to_all.key.chmod(0o644)
    wait_until(lambda: refused(source).code == "TLS_CLIENT", what="pg_hba.conf to be read again")
    connect(source, role(right)).close()
    ReplicationConnection(source, role(right)).close()
    wrong = {
        "PASSWORD": [encrypted.authority.issue("somebody_else")],
        "TLS_CLIENT": [
            encrypted.authority.issue(encrypted.database.user, lasts=-DAY),
            Authority(tmp_path / "other", "Another authority").issue(encrypted.database.user),
        ],
        "TLS_FILE": [open_to_all, Pair(tmp_path / "no.crt", right.key), Pair(right.certificate, tmp_path / "no.key")],
    }
    for code, pairs in wrong.items():
        for pair in pairs:
            error = refused(source, role(pair))
            assert error.code == code, error.message
            assert code != "PASSWORD" or "common name" in error.hint
            assert encrypted.database.password not in f"{error.message}{error.hint}"
