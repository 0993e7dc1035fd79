"""The source as it was at one position of its log: a snapshot exported by a temporary slot, read by the role `read`.

In: settings. Out: the position and a connection whose transaction sees the source there. Keeps true: it shows every
transaction whose commit record lies before the position, and no other.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.errors import QueryCanceled

from cdc.errors import TransientError
from cdc.lsn import parse_lsn
from cdc.names import quote_ident, quote_literal
from cdc.postgres import connect, conninfo, refused
from cdc.settings import Settings
from cdc.sqlstate import translated

_PG15: Final = 150_000
_SETTLE_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Cut:
    """The source at `lsn`, for as long as its connection's transaction lives."""

    lsn: int
    connection: psycopg.Connection[Any]


@contextmanager
def cut_of_source(settings: Settings, *, timeout_s: float, application: str) -> Iterator[Cut]:
    """The source at an LSN of the server's choice, which is now or a moment ago."""
    with (
        _walsender(settings, application) as slot,
        connect(settings.source, settings.source.read, application=application) as reader,
        translated(),
    ):
        lsn, snapshot = _export(slot, timeout_s)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(f"SET TRANSACTION SNAPSHOT {quote_literal(snapshot)}".encode())
        _settle(slot, reader, timeout_s)
        slot.close()  # the slot goes with it, and holds back no log while we read
        yield Cut(lsn, reader)


@contextmanager
def _walsender(settings: Settings, application: str) -> Iterator[psycopg.Connection[Any]]:
    source = settings.source
    parameters = conninfo(source, source.stream, replication=True, application=application)
    try:
        connection = psycopg.connect(parameters, autocommit=True)
    except psycopg.Error as error:
        raise refused(source, source.stream, str(error)) from error
    try:
        yield connection
    finally:
        connection.close()


def _export(slot: psycopg.Connection[Any], timeout_s: float) -> tuple[int, str]:
    """Consistent point and snapshot name. The server waits for every open writing transaction; we do not for ever."""
    name = quote_ident(f"afterimage_cut_{secrets.token_hex(8)}")
    export = "(SNAPSHOT 'export')" if slot.info.server_version >= _PG15 else "EXPORT_SNAPSHOT"
    cancel = threading.Timer(timeout_s, _cancel, [slot])
    cancel.start()
    try:
        row = slot.execute(f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput {export}".encode()).fetchone()
    except QueryCanceled as error:
        raise _still_open(timeout_s) from error
    finally:
        cancel.cancel()
        cancel.join()
    assert row is not None
    return parse_lsn(row[1]), row[2]


def _cancel(connection: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.Error):  # the waiting thread meets whatever is wrong with the connection itself
        connection.cancel_safe()


def _settle(other: psycopg.Connection[Any], reader: psycopg.Connection[Any], timeout_s: float) -> None:
    """Wait until whatever the snapshot shows as committed is committed for its readers too.

    Decoding learns of a commit from the log, a moment before the backend marks the transaction as committed; a reader
    in that moment would take the rows of such a transaction for those of an aborted one.
    """
    _, end, hidden = _snapshot(reader)
    deadline = time.monotonic() + timeout_s
    while any(xid < end and xid not in hidden for xid in _snapshot(other)[2]):
        if time.monotonic() > deadline:
            raise _still_open(timeout_s)
        time.sleep(_SETTLE_POLL_S)


def _snapshot(connection: psycopg.Connection[Any]) -> tuple[int, int, frozenset[int]]:
    row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
    assert row is not None
    first, end, running = row[0].split(":")
    return int(first), int(end), frozenset(int(xid) for xid in running.split(",") if xid)


def _still_open(timeout_s: float) -> TransientError:
    return TransientError(
        f"no snapshot of the source within {timeout_s:g} s: a transaction that writes has been open all the while",
        "see SELECT pid, xact_start FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY 2",
        code="OPEN_TRANSACTION",
    )
