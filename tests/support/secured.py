"""Servers behind TLS: a Kafka with a listener for each way to log in, and a proxy that speaks TLS for a plain one."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from cdc.stack.kafka import Kafka
from cdc.stack.ports import HOST
from cdc.stack.server import Ports
from tests.support.certificates import DAY, Authority, Pair

PROTOCOLS = {"sasl_ssl": "SASL_SSL", "ssl": "SSL", "sasl_plaintext": "SASL_PLAINTEXT", "expired": "SSL"}
"""Listener -> security protocol; every one but `expired` is right."""
USER = "afterimage"
HOST_NAME = "localhost"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuredKafka(Kafka):
    """PLAINTEXT for the test itself, and the listeners of PROTOCOLS."""

    def __init__(self, folder: Path, *, authority: Authority, password: str, **options: Any) -> None:
        self._authority = authority
        self._password = password
        super().__init__(folder, **options)
        self.preferred = {**self.preferred, **dict.fromkeys(PROTOCOLS, 0)}

    def listeners(self, ports: Ports) -> dict[str, str]:
        plain = super().listeners(ports)
        more = ",".join(f"{name.upper()}://{HOST_NAME}:{ports[name]}" for name in PROTOCOLS)
        kinds = ",".join(f"{name.upper()}:{protocol}" for name, protocol in PROTOCOLS.items())
        return {
            **plain,
            "listeners": f"{plain['listeners']},{more}",
            "advertised.listeners": f"{plain['advertised.listeners']},{more}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{kinds}",
            **self._stores(),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_PLAIN} required user_{USER}="{self._password}";',
        }

    def _stores(self) -> dict[str, str]:
        valid = self._authority.issue("broker", HOST_NAME)
        over = self._authority.issue("broker", HOST_NAME, lasts=-DAY)
        stores = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._authority.certificate)}
        for prefix, pair in (("", valid), ("listener.name.expired.", over)):
            both = pair.key.with_suffix(".both")
            both.write_text(pair.both)
            stores |= {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.keystore.location": str(both)}
        return stores


def set_scram_password(bootstrap: str, password: str) -> None:
    """Make or change the user of the SASL_SSL listener."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, password.encode())
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(30)


@contextmanager
def speaking_tls(port: int, pair: Pair) -> Iterator[int]:
    """A port that speaks TLS with this certificate, in front of a plain one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server((HOST, 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    threading.Thread(target=_serve_one, args=(context, accepted, port), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def _serve_one(context: ssl.SSLContext, accepted: socket.socket, port: int) -> None:
    with (
        suppress(OSError),
        context.wrap_socket(accepted, server_side=True) as outer,
        socket.create_connection((HOST, port)) as inner,
    ):
        back = threading.Thread(target=_pump, args=(inner, outer), daemon=True)
        back.start()
        _pump(outer, inner)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
