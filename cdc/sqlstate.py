"""What Postgres refuses, as our errors: decided by SQLSTATE, never by a sentence that the server may have translated.

In: psycopg's errors and libpq's results. Out: a CdcError with a remedy. Invariant: a message that can quote a row's
value (classes 22, 23, P0) is never passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from cdc.errors import CdcError, OperatorError, TransientError


class _Meaning(NamedTuple):
    kind: type[CdcError]
    code: str
    hint: str


_RETRY = "nothing to do if it comes back by itself; else look at the Postgres server's log"
_CHECK = "run: afterimage check"

_PRIVILEGE = _Meaning(
    OperatorError, "PRIVILEGE", "run `afterimage check`: it names the missing GRANT, `check --fix` gives it"
)
_ROW_SECURITY = _Meaning(
    OperatorError,
    "ROW_SECURITY",
    "a policy would hide rows from the copy: exclude the table, or let the role see all rows: ALTER ROLE .. BYPASSRLS",
)

# The longest prefix of the SQLSTATE that stands here decides.
_MEANINGS: Final[dict[str, _Meaning]] = {
    "08": _Meaning(TransientError, "POSTGRES_UNAVAILABLE", _RETRY),
    "0A": _Meaning(OperatorError, "UNSUPPORTED", _CHECK),
    "25P03": _Meaning(TransientError, "POSTGRES_TIMEOUT", "a timeout is set for the role: run `afterimage check`"),
    "25P04": _Meaning(TransientError, "POSTGRES_TIMEOUT", "ALTER ROLE .. SET transaction_timeout = 0"),
    "28": _Meaning(OperatorError, "LOGIN", "check the user and password of the role; `check --fix` sets them"),
    "3D000": _Meaning(OperatorError, "NO_DATABASE", "check source.database in the configuration"),
    "40001": _Meaning(TransientError, "POSTGRES_CONFLICT", _RETRY),
    "40P01": _Meaning(TransientError, "POSTGRES_CONFLICT", _RETRY),
    "42501": _PRIVILEGE,
    "42704": _Meaning(OperatorError, "MISSING", "run `afterimage check`: it names what is missing"),
    "53": _Meaning(TransientError, "POSTGRES_RESOURCES", "free disk, memory or connections on the Postgres server"),
    "53400": _Meaning(OperatorError, "POSTGRES_LIMIT", "raise max_replication_slots or max_wal_senders; see `check`"),
    "55000": _Meaning(
        OperatorError, "STATE", "run `afterimage check`: a lost slot, a standby or wal_level is named there"
    ),
    "55006": _Meaning(
        OperatorError, "SLOT_IN_USE", "another capture of this pipeline is running: stop it, or this one"
    ),
    "55P03": _Meaning(TransientError, "POSTGRES_CONFLICT", _RETRY),
    "57": _Meaning(TransientError, "POSTGRES_UNAVAILABLE", _RETRY),
    "58": _Meaning(OperatorError, "POSTGRES_SYSTEM", "look at the Postgres server's log, then run `afterimage check`"),
    "58P01": _Meaning(OperatorError, "SLOT_LOST", "the log that the slot needs is gone: run `afterimage recover`"),
}
_REFUSED = _Meaning(OperatorError, "POSTGRES", "look at the Postgres server's log")
_LOST = _Meaning(TransientError, "POSTGRES_UNAVAILABLE", _RETRY)
_MAY_QUOTE_VALUES = ("22", "23", "P0")


@contextmanager
def translated() -> Iterator[None]:
    """Raise psycopg's errors as ours."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


def translate(error: psycopg.Error) -> CdcError:
    """What an error of a statement means for the pipeline."""
    state = error.sqlstate
    if state is None:
        # libpq itself noticed something: nearly always that the connection went away.
        lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return _error(_LOST if lost else _REFUSED, str(error).strip())
    message = error.diag.message_primary or "no message"
    if state[:2] in _MAY_QUOTE_VALUES:
        message = f"{type(error).__name__} (its message may quote a row and is left out)"
    return _error(_meaning(state, error.diag.source_file), f"{message} [SQLSTATE {state}]")


def result_error(result: pq.abc.PGresult) -> CdcError:
    """The same for a result of libpq, as the replication connection has them."""
    return translate(error_from_result(result))


def _meaning(state: str, source_file: str | None) -> _Meaning:
    # Both are 42501; the file that raised it tells them apart in every language.
    if state == "42501" and source_file == "rls.c":
        return _ROW_SECURITY
    for length in (5, 2):
        if found := _MEANINGS.get(state[:length]):
            return found
    return _REFUSED


def _error(meaning: _Meaning, message: str) -> CdcError:
    return meaning.kind(f"Postgres: {message}", meaning.hint, code=meaning.code)
