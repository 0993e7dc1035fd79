"""The replication connection: libpq's COPY BOTH over psycopg's `pq` layer.

In: the source and its `stream` role. Out: frames, as bytes, in order. Keeps true: only what the caller has
confirmed is ever confirmed, and the walsender gets its answers even while the caller is busy (from a second thread).
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from psycopg import pq

from cdc.copy_data import CopyData
from cdc.errors import CdcError, TransientError
from cdc.frames import encode_status
from cdc.log import get
from cdc.lsn import format_lsn, parse_lsn
from cdc.names import quote_ident, quote_literal
from cdc.postgres import conninfo, refused
from cdc.settings import Role, Source
from cdc.sqlstate import result_error

_FRAMES_MAX: Final = 4_000
_BYTES_MAX: Final = 8 << 20
_GATHERED_BYTES: Final = 512 << 10
_GATHER_S: Final = 0.004
_NARROW_BYTES: Final = 32 << 10
_HEARTBEAT_S: Final = 2.0
_PG15: Final = 150_000
_PG17: Final = 170_000
_WAITS_S: Final = 5.0

_log = get(__name__)


@dataclass(frozen=True, slots=True)
class NewSlot:
    """A slot just made: its consistent point, and the snapshot that shows exactly what committed before it."""

    consistent_lsn: int
    snapshot: str | None


class ReplicationConnection:
    """One walsender. Commands first; after `start` only frames and confirmations."""

    def __init__(
        self, source: Source, role: Role, *, application: str = "afterimage", keepalive_s: float = 10.0
    ) -> None:
        self._failover = source.failover
        self._lock = threading.Lock()
        self._confirmed = 0
        self._taken_bytes = 0
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None
        self._keepalive_s = keepalive_s
        self._silent_since_s: float | None = None
        parameters = conninfo(source, role, replication=True, application=application)
        self._pg = pq.PGconn.connect(parameters.encode())
        if self._pg.status != pq.ConnStatus.OK:
            message = _decoded(self._pg.error_message)
            self._pg.finish()
            raise refused(source, role, message)

    def identify(self) -> str:
        """The cluster's system identifier."""
        return self._query("IDENTIFY_SYSTEM")[0][0] or ""

    @property
    def is_standby(self) -> bool:
        """Whether the server was in recovery when it was last heard of."""
        return self._pg.parameter_status(b"in_hot_standby") == b"on"

    def timeline(self) -> int:
        """The timeline that the server is on; a standby's is that of what it has replayed."""
        return int(self._query("IDENTIFY_SYSTEM")[0][1] or 0)

    def timeline_history(self, timeline: int) -> str:
        """The history file of a timeline; the first one has none."""
        return (self._query(f"TIMELINE_HISTORY {timeline}")[0][1] or "") if timeline > 1 else ""

    def create_slot(self, name: str, *, temporary: bool = False) -> NewSlot:
        """A logical slot with an exported snapshot; it must be imported before this connection is used again."""
        export = "(SNAPSHOT 'export')" if self._pg.server_version >= _PG15 else "EXPORT_SNAPSHOT"
        if self._failover and self._pg.server_version >= _PG17 and not (temporary or self.is_standby):
            export = "(SNAPSHOT 'export', FAILOVER true)"
        kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
        with _said_when_slow(self.is_standby):
            row = self._query(f"CREATE_REPLICATION_SLOT {quote_ident(name)} {kind} pgoutput {export}")[0]
        return NewSlot(parse_lsn(row[1] or ""), row[2])

    def drop_slot(self, name: str) -> None:
        """Drop a slot that nobody reads."""
        self._query(f"DROP_REPLICATION_SLOT {quote_ident(name)}")

    def start(self, slot: str, publication: str, lsn: int, *, messages: bool = False, in_pieces: bool = True) -> None:
        """Begin streaming at `lsn`; `in_pieces` lets large transactions come before they commit."""
        names = quote_literal(quote_ident(publication))
        command = (
            f"START_REPLICATION SLOT {quote_ident(slot)} LOGICAL {format_lsn(lsn)} "
            f"(proto_version '2', streaming '{_switch(in_pieces)}', messages '{_switch(messages)}', "
            f"publication_names {names})"
        )
        result = self._pg.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise result_error(result)
        self._confirmed = lsn
        self._copy = CopyData(self._pg)
        _narrow(self._pg.socket)
        self._pg.nonblocking = 1
        self._heart = threading.Thread(target=self._beat, name="replication-heartbeat", daemon=True)
        self._heart.start()

    def read(self, wait_s: float, *, far_behind: bool = False) -> tuple[list[bytes], bool]:
        """Frames that have arrived, waiting for the first; whether all that was there has been taken."""
        if far_behind and self._taken_bytes < _GATHERED_BYTES:
            # A few frames at a time cost more than the frames: let the socket gather some, and the walsender go on.
            time.sleep(_GATHER_S)
        frames, drained = self._take()
        if not frames and wait_s > 0:
            select.select([self._pg.socket], [], [], wait_s)
            frames, drained = self._take()
        self._require_life(heard=bool(frames))
        return frames, drained

    def confirm(self, lsn: int, *, ask_reply: bool = False) -> None:
        """Say that everything before `lsn` is safe."""
        self._confirmed = max(self._confirmed, lsn)
        with self._lock:
            self._send(ask_reply)

    def close(self) -> None:
        """End the connection; the slot stays where it was confirmed."""
        self._stop.set()
        if self._heart is not None:
            self._heart.join(_HEARTBEAT_S * 2)
        with self._lock:
            self._pg.finish()

    def _require_life(self, *, heard: bool) -> None:
        """Only while somebody reads: what has come meanwhile lies in the buffers, and is heard first."""
        now = time.monotonic()
        if heard:
            self._silent_since_s = None
        elif self._silent_since_s is None:
            self._silent_since_s = now
        elif now - self._silent_since_s > 2 * self._keepalive_s:
            raise _lost(f"no sign of life for {now - self._silent_since_s:.0f} s")

    def _take(self) -> tuple[list[bytes], bool]:
        """What libpq and the socket hold, of which libpq takes only some kilobytes at a time; whether that was all."""
        frames: list[bytes] = []
        size, consumed = 0, False
        with self._lock:
            while len(frames) < _FRAMES_MAX and size < _BYTES_MAX:
                taken = self._copy.take(_FRAMES_MAX - len(frames), _BYTES_MAX - size)
                if taken.has_ended:
                    raise self._ended()
                if consumed and not taken.pieces:
                    self._taken_bytes = size
                    return frames, True
                frames += taken.pieces
                size += taken.size
                self._consume()
                consumed = True
        self._taken_bytes = size
        return frames, False

    def _consume(self) -> None:
        try:
            self._pg.consume_input()
        except Exception as error:
            raise _lost(_decoded(self._pg.error_message)) from error

    def _ended(self) -> CdcError:
        result = self._pg.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return result_error(result)
        return _lost("the server ended the stream")

    def _send(self, ask_reply: bool) -> None:
        try:
            self._pg.put_copy_data(_status(self._confirmed, ask_reply))
            self._pg.flush()
        except Exception as error:
            raise _lost(_decoded(self._pg.error_message)) from error

    def _beat(self) -> None:
        """Answer for a caller that is waiting for Kafka, so that wal_sender_timeout never strikes; ask now and then."""
        asked_s = time.monotonic()
        while not self._stop.wait(min(_HEARTBEAT_S, self._keepalive_s / 2)):
            asks = time.monotonic() - asked_s >= self._keepalive_s
            asked_s = time.monotonic() if asks else asked_s
            try:
                with self._lock:
                    if self._pg.status == pq.ConnStatus.OK and not self._stop.is_set():
                        self._send(asks)
            except TransientError:
                return  # the reading thread meets the same error and reports it

    def _query(self, command: str) -> list[list[str | None]]:
        result = self._pg.exec_(command.encode())
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise result_error(result)
        return [
            [_text(result.get_value(row, column)) for column in range(result.nfields)] for row in range(result.ntuples)
        ]


@contextmanager
def _said_when_slow(is_standby: bool) -> Iterator[None]:
    """Postgres waits for every open transaction, and a standby for its primary to tell of them."""
    remedy = "end long transactions (pg_stat_activity)"
    if is_standby:
        remedy = "on the primary, if nobody writes there: SELECT pg_log_standby_snapshot()"
    said = threading.Timer(_WAITS_S, lambda: _log.warning("making the slot waits", code="SLOT_WAITS", remedy=remedy))
    said.daemon = True
    said.start()
    try:
        yield
    finally:
        said.cancel()


def _narrow(descriptor: int) -> None:
    """On one machine, let what is not read yet wait with the sender: it has it in large pieces then, while each frame
    that the receiver's buffer has room for goes through the network's layers alone, at the walsender's cost (a third of
    what it does). Between machines a small window would be slow."""
    with socket.socket(fileno=os.dup(descriptor)) as line:
        if line.family != socket.AF_UNIX and line.getpeername()[0] == line.getsockname()[0]:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW_BYTES)


def _status(confirmed: int, ask_reply: bool) -> bytes:
    return encode_status(
        written_lsn=confirmed,
        flushed_lsn=confirmed,
        applied_lsn=confirmed,
        now_us=time.time_ns() // 1000,
        reply_requested=ask_reply,
    )


def _switch(wanted: bool) -> str:
    return "on" if wanted else "off"


def _text(value: bytes | None) -> str | None:
    return value.decode() if value is not None else None


def _decoded(message: bytes) -> str:
    return message.decode("utf-8", "replace").strip()


def _lost(message: str) -> TransientError:
    return TransientError(
        f"the connection to Postgres was lost: {message}", "capture reconnects by itself", code="POSTGRES_LOST"
    )
