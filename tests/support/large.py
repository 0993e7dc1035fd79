"""One large transaction through a capture that is a process of its own: killed amid it, and watched for memory.

In: a prepared source and a size. Out: figures, after everything that must hold has been asserted.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from psycopg import sql

from cdc.errors import TransientError
from cdc.names import topic_name
from cdc.postgres import connect
from cdc.progress_log import ProgressLog
from cdc.settings import Settings
from tests.support.capturing import each_message, insert_lsn
from tests.support.processes import Command, write_config
from tests.support.wait import wait_until

ROW_BYTES = 1024
SMALL = 50
_POSITION = re.compile(rb'"commit_lsn":(\d+),"ordinal":(\d+)\}')
_FILL = "INSERT INTO public.orders SELECT g, repeat(md5(g::text), 32), 1 FROM generate_series(%s::int, %s::int) g"


@dataclass
class Figures:
    """What was seen."""

    megabytes: int
    rows: int
    peak_rss_mb: float = 0.0
    spool_mb: float = 0.0
    small_meanwhile_s: float = 0.0
    commit_to_published_s: float = 0.0
    parts: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name}={value:.4g}" for name, value in asdict(self).items())


@dataclass
class Watch:
    """The largest memory of a process and its children together, looked at all the time."""

    pid: int
    peak_bytes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        while not self._stop.wait(0.02):
            try:
                process = psutil.Process(self.pid)
                family = [process, *process.children(recursive=True)]
                self.peak_bytes = max(self.peak_bytes, sum(each.memory_info().rss for each in family))
            except psutil.NoSuchProcess:
                return


@contextmanager
def watched(command: Command) -> Iterator[Watch]:
    assert command.process is not None
    watch = Watch(command.process.pid)
    thread = threading.Thread(target=watch.look)
    thread.start()
    try:
        yield watch
    finally:
        watch._stop.set()
        thread.join()


def run_large_transaction(settings: Settings, folder: Path, megabytes: int) -> Figures:
    """Fill it half, kill capture, fill the rest, commit; small transactions before, meanwhile and behind."""
    rows = megabytes * (1 << 20) // ROW_BYTES
    figures = Figures(megabytes, rows)
    config = write_config(settings, folder)
    capture = Command(config, ("capture",), folder / "capture.log").start()
    admin_role = settings.source.admin
    assert admin_role is not None
    try:
        with connect(settings.source, admin_role) as admin, connect(settings.source, admin_role) as application:
            _wait_for(settings, capture, insert_lsn(admin))
            with application.transaction():
                _fill(application, 0, rows // 2)
                _wait_for_pieces(admin, settings)
                capture.kill()
                assert list((settings.data / "spool").glob("*")) == [], "a killed capture left its spool"
                capture.start()
                with watched(capture) as watch:
                    _fill(application, rows // 2, rows)
                    with application.transaction(force_rollback=True):
                        _fill(application, 2 * rows, 2 * rows + rows // 20)
                    figures.small_meanwhile_s = _small(settings, capture, admin, -1, timeout_s=900)
                    figures.spool_mb = _open_file_bytes(capture) / (1 << 20)
                figures.peak_rss_mb = watch.peak_bytes / (1 << 20)
            with watched(capture) as watch:
                figures.commit_to_published_s = _small(settings, capture, admin, -1 - SMALL, timeout_s=900)
            figures.peak_rss_mb = max(figures.peak_rss_mb, watch.peak_bytes / (1 << 20))
            assert capture.stop() == 0, capture.text()[-3000:]
            figures.parts = _check(settings, rows)
    finally:
        if capture.alive:
            capture.stop()
    return figures


def _fill(connection: Any, start: int, end: int) -> None:
    for first in range(start, end, 100_000):
        connection.execute(_FILL, [first + 1, min(end, first + 100_000)])


def _small(settings: Settings, capture: Command, connection: Any, first: int, timeout_s: float) -> float:
    """Some small transactions; how long until the last one is published."""
    for number in range(SMALL):
        connection.execute("INSERT INTO public.orders VALUES (%s, 'small', 1)", [first - number])
    began_s = time.monotonic()
    _wait_for(settings, capture, insert_lsn(connection), timeout_s)
    return time.monotonic() - began_s


def _wait_for(settings: Settings, capture: Command, lsn: int, timeout_s: float = 120) -> None:
    log = ProgressLog(settings.kafka, settings.pipeline)

    def reached() -> bool:
        assert capture.alive, capture.text()[-3000:]
        try:
            boundary = log.boundary(0.2)
        except TransientError:  # the topic is being made
            return False
        return boundary is not None and boundary.lsn >= lsn

    try:
        wait_until(reached, timeout_s=timeout_s, what="capture to reach the position")
    finally:
        log.close()


def _wait_for_pieces(connection: Any, settings: Settings) -> None:
    query = "SELECT stream_count > 0 FROM pg_stat_replication_slots WHERE slot_name = %s"

    def sent() -> bool:
        row = connection.execute(query, [settings.slot]).fetchone()
        return bool(row and row[0])

    wait_until(sent, what="pieces to be sent")


def _open_file_bytes(capture: Command) -> int:
    """What the spool takes on disk: its file has no name, but the process has it open."""
    assert capture.process is not None
    deleted = [path for path in Path(f"/proc/{capture.process.pid}/fd").iterdir() if "/spool/" in str(path.resolve())]
    return sum(path.stat().st_size for path in deleted)


def _check(settings: Settings, rows: int) -> int:
    """Every change is there once and in order, none of what was rolled back; how many parts there were."""
    partitions = settings.kafka.partitions
    topic = topic_name(settings.pipeline, "public", "orders")
    newest = dict.fromkeys(range(partitions), (0, 0))
    counts: dict[int, int] = {}
    for message in _messages(settings, topic, partitions):
        value = message.value()
        assert value is not None
        found = _POSITION.search(value, value.rindex(b'"source"'))
        assert found is not None
        position = int(found[1]), int(found[2])
        assert position > newest[message.partition()], "twice, or out of order"
        newest[message.partition()] = position
        counts[position[0]] = counts.get(position[0], 0) + 1
    assert sorted(counts.values()) == [*[1] * (2 * SMALL), rows]
    kinds = [message.value() for message in _messages(settings, f"{settings.pipeline}._progress", 1)]
    return sum(b'"kind":"part"' in (value or b"") for value in kinds)


def _messages(settings: Settings, topic: str, partitions: int) -> Iterator[Any]:
    return each_message(settings, topic, partitions, **{"queued.max.messages.kbytes": 32_768})


def with_small_work_memory(settings: Settings, admin: Any) -> None:
    """Postgres sends every transaction above 64 kB in pieces."""
    database = sql.Identifier(settings.source.database)
    admin.execute(sql.SQL("ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'").format(database))
