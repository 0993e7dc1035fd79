"""Why a server's certificate is not trusted, in words that libpq, librdkafka and Java keep to themselves.

In: an address and the authority that the configuration names. Out: what is wrong, its remedy and a stable code. Only
asked after a client has failed, by a handshake of its own that sends nothing else; it never decides whom to trust.
"""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cdc.errors import OperatorError

_TIMEOUT_S: Final = 5.0
_POSTGRES_REQUEST: Final = struct.pack(">II", 8, 80877103)
"""SSLRequest: Postgres speaks TLS only after it has been asked to."""

# X509_V_ERR_*, of OpenSSL's x509_vfy.h.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = (62, 64)  # host name, IP address


@dataclass(frozen=True, slots=True)
class Distrust:
    """What is wrong with a certificate."""

    reason: str
    hint: str
    code: str

    def error(self, who: str) -> OperatorError:
        """As an error of the connection to `who`."""
        return OperatorError(f"{who} is not trusted: {self.reason}", self.hint, code=self.code)


def is_of_tls(cause: BaseException | None, authority: Path | None) -> bool:
    """Whether a connection failed by TLS, or by an authority's file that cannot be read."""
    unreadable = isinstance(cause, FileNotFoundError | PermissionError) and authority is not None
    return isinstance(cause, ssl.SSLError) or unreadable


def refusal(url: str, authority: Path | None, *, key: str, who: str) -> OperatorError:
    """The error for a URL whose TLS has failed."""
    place = urlsplit(url)
    port = place.port or (443 if place.scheme == "https" else 6379)
    if wrong := why_distrusted(place.hostname or "", port, authority, key=key):
        return wrong.error(who)
    return OperatorError(f"{who}: TLS fails", "does its port speak TLS? check the scheme of the URL", code="TLS")


def why_distrusted(
    host: str, port: int, authority: Path | None, *, key: str, names: bool = True, postgres: bool = False
) -> Distrust | None:
    """What is wrong with the certificate shown there; None where nothing is, or nobody answers with one.

    `key` is the configuration's key that names the authority.
    """
    try:
        context = ssl.create_default_context(cafile=authority.expanduser() if authority else None)
    except OSError as error:
        reason = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        hint = f"let {key} name a readable PEM file with the authority's certificate"
        return Distrust(f"the authority's file {authority} cannot be used: {reason}", hint, code="TLS_FILE")
    context.check_hostname = names
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as plain:
            if postgres:
                plain.sendall(_POSTGRES_REQUEST)
                if plain.recv(1) != b"S":
                    return None
            with context.wrap_socket(plain, server_hostname=host):
                return None
    except ssl.SSLCertVerificationError as error:
        return _explained(error, host, key)
    except OSError:
        return None


def _explained(error: ssl.SSLCertVerificationError, host: str, key: str) -> Distrust:
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return Distrust(
            f"its certificate is not valid now ({error.verify_message})",
            "renew the server's certificate, and check both clocks",
            code="TLS_EXPIRED",
        )
    if error.verify_code in _OTHER_NAME:
        return Distrust(
            f"its certificate is not for {host}",
            "connect by a name that stands in the certificate, or have one issued for this name",
            code="TLS_HOST_NAME",
        )
    return Distrust(
        f"its certificate is not signed by a trusted authority ({error.verify_message})",
        f"let {key} name the authority that signed it; if it does, find out who answers there",
        code="TLS_UNTRUSTED",
    )
