"""Ordinary connections to Postgres, opened in this one place so that every session prints values in the same way.

In: the source's settings and one of its roles. Out: a psycopg connection or a connection string, or a CdcError that
names the remedy. Invariant: row_security is off (a policy raises instead of hiding rows), no error has the password.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from cdc.errors import CdcError, ConfigError, OperatorError, TransientError
from cdc.names import quote_ident
from cdc.settings import Role, Source
from cdc.tls import why_distrusted

SESSION: Final = {
    "DateStyle": "ISO,MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "extra_float_digits": "3",
    "row_security": "off",
    "search_path": "pg_catalog",
    # A role's own timeouts would cut snapshots and proofs; all of these exist since 14.
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""Session settings of FORMATS.md, "As printed". They come with the connection, so they beat the role's own."""

_TRANSPORT: Final[dict[str, str | int]] = {
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class _Refusal(NamedTuple):
    """What a fragment of libpq's sentence means."""

    fragment: str
    kind: type[CdcError]
    code: str
    hint: str


_AWAY = "check that Postgres runs and that source.host and source.port are right"
# Failed logins have no SQLSTATE in libpq, only a sentence; what is not recognised stops as LOGIN.
_REFUSALS: Final = (
    _Refusal(
        "password authentication failed",
        OperatorError,
        "PASSWORD",
        "set {where}.password_file to the role's password; for stream and read, `check --fix` sets the configured one",
    ),
    _Refusal(
        "no password supplied",
        OperatorError,
        "PASSWORD",
        "set {where}.password_file",
    ),
    _Refusal(
        "pg_hba.conf",
        OperatorError,
        "PG_HBA",
        "add to pg_hba.conf: host {database} {user} <address> scram-sha-256; "
        "for a hostssl line that is there, set source.sslmode to verify-full",
    ),
    _Refusal(
        "is not permitted to log in", OperatorError, "LOGIN", "ALTER ROLE {user} LOGIN, or run `afterimage check --fix`"
    ),
    _Refusal("walsender", OperatorError, "NO_REPLICATION", "ALTER ROLE {user} REPLICATION, or run `check --fix`"),
    _Refusal("WAL sender", OperatorError, "NO_REPLICATION", "ALTER ROLE {user} REPLICATION, or run `check --fix`"),
    _Refusal("database", OperatorError, "NO_DATABASE", "check source.database and that {user} may CONNECT to it"),
    _Refusal(
        "role", OperatorError, "NO_ROLE", "run `afterimage check --fix` with source.admin set: it makes the roles"
    ),
)
# libpq gives up by itself here, so to a ping the server looks away. The first that fits counts.
_TLS_REFUSALS: Final = (
    _Refusal(
        "does not support SSL",
        OperatorError,
        "TLS",
        "set ssl = on in postgresql.conf, or choose another source.sslmode",
    ),
    _Refusal(
        "root certificate",
        OperatorError,
        "TLS_FILE",
        "let source.sslrootcert name a readable PEM file of the authority",
    ),
    _Refusal("valid client certificate", OperatorError, "TLS_CLIENT", "set {where}.sslcert and {where}.sslkey"),
    _Refusal(
        "certificate authentication failed",
        OperatorError,
        "TLS_CLIENT",
        "the certificate's common name must be the role's, or be mapped to it in pg_ident.conf",
    ),
    _Refusal(
        "private key file", OperatorError, "TLS_FILE", "let {where}.sslkey name a readable key; then chmod 0600 it"
    ),
    _Refusal(
        " alert ", OperatorError, "TLS_CLIENT", "have {where}.sslcert signed by the server's ssl_ca_file, and renewed"
    ),
    _Refusal("certificate", OperatorError, "TLS", "check source.sslmode and source.sslrootcert"),
    _Refusal("SSL error", OperatorError, "TLS", "check source.sslmode, and which TLS versions the server takes"),
)
_PASSING = (
    "the database system is",
    "too many",
    "connection slots",
    "max_wal_senders",
    "terminat",
    "timeout",
    "timed out",
    "closed",
    "reset",
    "could not receive",
    "could not send",
    "EOF",
    "Broken pipe",
)


def conninfo(source: Source, role: Role, replication: bool = False, *, application: str = "afterimage") -> str:
    """libpq's connection string for the role; it holds the password, so it is never logged."""
    parameters: dict[str, str | int | None] = {
        **_TRANSPORT,
        "host": source.host,
        "port": source.port,
        "dbname": source.database,
        "user": role.user,
        "password": role.secret(),
        "sslmode": source.sslmode,
        "sslrootcert": _path(source.sslrootcert),
        "sslcert": _own(role.sslcert, "sslcert"),
        "sslkey": _own(role.sslkey, "sslkey"),
        "application_name": application,
        "options": " ".join(f"-c {name}={value}" for name, value in SESSION.items()),
        "replication": "database" if replication else None,
    }
    return make_conninfo("", **{name: value for name, value in parameters.items() if value is not None})


def _path(path: Path | None) -> str | None:
    return str(path.expanduser()) if path is not None else None


def _own(path: Path | None, key: str) -> str | None:
    """libpq would go on without a certificate that is not there, and the server then say that none was given."""
    if path is not None and not path.expanduser().is_file():
        raise ConfigError(f"{key}: {path} is not there", f"let {key} name a readable PEM file", code="TLS_FILE")
    return _path(path)


def connect(
    source: Source, role: Role, *, autocommit: bool = True, application: str = "afterimage"
) -> psycopg.Connection[TupleRow]:
    """An ordinary connection of the role with the session settings; close it, or use it in a `with`."""
    parameters = conninfo(source, role, application=application)
    try:
        return psycopg.connect(parameters, autocommit=autocommit)
    except psycopg.Error as error:
        raise refused(source, role, str(error)) from error


def refused(source: Source, role: Role, message: str) -> CdcError:
    """What a failed connection attempt means; `message` is libpq's. For the replication adapter too."""
    # libpq's lines begin with "connection failed: connection to server at ..., port ... failed:".
    reason = " ".join(message.rsplit("failed: ", 1)[-1].split()) or "no answer"
    at = f"{source.host}:{source.port}/{source.database}"
    text = f"Postgres at {at} refuses {role.user}: {reason}"
    if (of_tls := _refused_by_tls(source, role, reason, text)) is not None:
        return of_tls
    ping = pq.PGconn.ping(conninfo(source, role).encode())
    if ping == pq.Ping.NO_ATTEMPT:
        return ConfigError(f"cannot connect to Postgres at {at}: {reason}", "check the section `source`")
    if ping != pq.Ping.OK:
        return TransientError(f"Postgres at {at} does not answer: {reason}", _AWAY, code="POSTGRES_UNAVAILABLE")
    if any(fragment in reason for fragment in _PASSING):
        return TransientError(text, _AWAY, code="POSTGRES_UNAVAILABLE")
    name = where(source, role)
    for refusal in _REFUSALS:
        if refusal.fragment in reason:
            hint = refusal.hint.format(where=name, database=quote_ident(source.database), user=quote_ident(role.user))
            if refusal.code == "PASSWORD" and role.sslcert is not None:  # Postgres says the same of both
                hint += "; or the certificate's common name is not the role's"
            return refusal.kind(text, hint, code=refusal.code)
    return OperatorError(text, f"check {name} and the Postgres server's log", code="LOGIN")


def _refused_by_tls(source: Source, role: Role, reason: str, text: str) -> CdcError | None:
    """libpq says little of a server's certificate, so it is looked at once more."""
    if "verify failed" in reason or "does not match host name" in reason:
        names = source.sslmode == "verify-full"
        key = "source.sslrootcert"
        if wrong := why_distrusted(source.host, source.port, source.sslrootcert, key=key, names=names, postgres=True):
            return wrong.error(f"Postgres at {source.host}:{source.port}")
    refusal = next((each for each in _TLS_REFUSALS if each.fragment in reason), None)
    if refusal is None:
        return None
    return refusal.kind(text, refusal.hint.format(where=where(source, role)), code=refusal.code)


def where(source: Source, role: Role) -> str:
    """The configuration key that holds the role."""
    if role is source.admin:
        return "source.admin"
    return "source.stream" if role.user == source.stream.user else "source.read"
