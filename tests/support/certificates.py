"""A certificate authority of the test's own, and what it signs: PEM files, keys in PKCS#8 and readable by us alone."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path

    @property
    def both(self) -> str:
        """Key and certificate in one text, as Java's PEM stores want them."""
        return self.key.read_text() + self.certificate.read_text()


@dataclass
class Authority:
    """Signs certificates; `certificate` is what clients are told to trust."""

    folder: Path
    name: str = "Test authority"
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        basics = x509.BasicConstraints(ca=True, path_length=0)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = _builder(self.name, self.name, self._key, dt.timedelta(days=30))
        built = built.add_extension(basics, critical=True).add_extension(usage, critical=True)
        built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self.certificate = self.folder / "ca.pem"
        self.certificate.write_bytes(_pem(built.sign(self._key, hashes.SHA256())))

    def issue(self, common_name: str, *hosts: str, lasts: dt.timedelta = dt.timedelta(days=30)) -> Pair:
        """A certificate for a server (its hosts) or a client (its common name); a negative time has passed already."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = _builder(common_name, self.name, key, lasts)
        if hosts:
            built = built.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = built.add_extension(signer, critical=False)
        stem = f"{len(list(self.folder.iterdir()))}"
        pair = Pair(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        pair.certificate.write_bytes(_pem(built.sign(self._key, hashes.SHA256())))
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, lasts: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common(subject))
        .issuer_name(_common(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + lasts)
    )


def _common(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
