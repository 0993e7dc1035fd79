"""A second thread of capture that looks at what the slot keeps, also while Kafka is away and WAL piles up.

In: settings. Out: metrics; warnings with code and remedy, at each change for the worse and then every ten minutes.
Keeps true: it never stops capture, whatever it meets; that Postgres is away is for the reading thread to tell.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Final

import psycopg

from cdc import metrics
from cdc.errors import CdcError
from cdc.log import get
from cdc.postgres import connect
from cdc.retention import SAFE, Danger, Level, Retention, judge, seconds_left, written_per_s
from cdc.settings import Settings
from cdc.slots import read_retention

_log = get(__name__)

_EVERY_S: Final = 2.0
_REPEAT_S: Final = 600.0
_GOODBYE_S: Final = 2.0


class Alarms:
    """What is said about one reading after the other, and how often."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: tuple[Retention, float] | None = None
        self._danger = SAFE
        self._said_s = 0.0
        self.bytes_per_s: float | None = None

    def take(self, retention: Retention, now_s: float) -> Danger:
        """Judge a reading; say so if it is news, or has not been said for long."""
        if self._last is not None:
            self.bytes_per_s = written_per_s(self._last[0], retention, now_s - self._last[1])
        self._last = retention, now_s
        settings = self._settings
        danger = judge(retention, settings.source.wal_bounds, settings.slot, self.bytes_per_s)
        is_worse = danger.level > self._danger.level
        if is_worse or (danger.level is not Level.SAFE and now_s - self._said_s >= _REPEAT_S):
            self._say(danger, retention)
            self._said_s = now_s
        elif danger.level is Level.SAFE and self._danger.level is not Level.SAFE:
            _log.info("the slot is safe again", slot=settings.slot, kept_bytes=retention.kept_bytes)
        self._danger = danger
        return danger

    def _say(self, danger: Danger, retention: Retention) -> None:
        _log.warning(
            "the slot or the source is in danger",
            code=danger.code,
            level=danger.level.name.lower(),
            reason=danger.message,
            remedy=danger.remedy,
            kept_bytes=retention.kept_bytes,
            safe_bytes=retention.safe_bytes,
            seconds_left=seconds_left(retention, self.bytes_per_s),
        )


class SlotWatch:
    """Use in a `with` around everything that capture does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._alarms = Alarms(settings)
        self._stop = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="slot-watch", daemon=True)

    def __enter__(self) -> SlotWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(_GOODBYE_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except CdcError as error:
                _log.debug("cannot look at the slot", code=error.code)
                self._close()
            self._stop.wait(_EVERY_S)
        self._close()

    def _look(self) -> None:
        source = self._settings.source
        if self._connection is None:
            self._connection = connect(source, source.read, application="afterimage slot watch")
        retention = read_retention(self._connection, self._settings.slot)
        danger = self._alarms.take(retention, time.monotonic())
        metrics.looked(retention, danger, self._alarms.bytes_per_s, time.time())

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
