"""Capture under a steady flow for minutes: memory stays flat, the lag bounded, and the topics end as the tables.

SOAK_SECONDS, SOAK_RATE (changes a second): how long and how much. Writes bench/results/soak.json; exit 1 if not so.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import psutil

from cdc.postgres import connect
from cdc.progress_log import ProgressLog
from cdc.settings import Settings
from tests.soak.bed import Bed, bed, number, say, write_result
from tests.soak.kills import catch_up
from tests.support.equal import Copies

DDL = "CREATE TABLE public.flow (id bigint PRIMARY KEY, customer text, amount numeric(12,2), at timestamptz);"
TRANSACTION_CHANGES = 50
WRITERS = 2
LIVE_ROWS = 20_000
SAMPLE_S = 1.0
WARM_UP = 0.1
"""The part of the run after which memory is looked at."""
GROWTH_MAX_MB = 16.0
LAG_MAX_S = 10.0

# Of 50 changes 10 are inserts, 30 updates and 10 deletes, so that the table keeps its size.
INSERT = (
    "INSERT INTO public.flow SELECT g, 'customer ' || g %% 977, (g %% 100000) / 8.0, clock_timestamp() "
    "FROM generate_series(%s::bigint, %s::bigint) g"
)
UPDATE = "UPDATE public.flow SET amount = amount + 1, at = clock_timestamp() WHERE id BETWEEN %s AND %s"
DELETE = "DELETE FROM public.flow WHERE id BETWEEN %s AND %s"


@dataclass
class Flow:
    """Writers that keep to a rate together, each in its own range of ids."""

    settings: Settings
    rate: float
    changes: int = 0
    errors: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for writer in range(WRITERS):
            thread = threading.Thread(target=self._guarded, args=(writer,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if self.errors:
            raise self.errors[0]

    def _guarded(self, writer: int) -> None:
        try:
            self._write(writer)
        except BaseException as error:  # noqa: BLE001
            self.errors.append(error)

    def _write(self, writer: int) -> None:
        source = self.settings.source
        assert source.admin is not None
        head = (writer + 1) * 10**12
        tail = head
        pause_s = WRITERS * TRANSACTION_CHANGES / self.rate
        due = time.monotonic()
        with connect(source, source.admin) as connection:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                # Behind, it does not make up for what it missed: the rate is a ceiling.
                due = max(due + pause_s, time.monotonic() - 1)
                with connection.transaction():
                    connection.execute(INSERT.encode(), (head, head + 9))
                    head += 10
                    low = max(tail, head - 1000)
                    connection.execute(UPDATE.encode(), (low, low + 29))
                    if head - tail > LIVE_ROWS:
                        connection.execute(DELETE.encode(), (tail, tail + 9))
                        tail += 10
                self.changes += TRANSACTION_CHANGES


@dataclass
class Samples:
    """What capture looked like, second by second."""

    rss_mb: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)
    lag_mb: list[float] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        warm = self.rss_mb[int(len(self.rss_mb) * WARM_UP) :]
        third = max(1, len(warm) // 3)
        return {
            "rss_mb": {"first_third": median(warm[:third]), "last_third": median(warm[-third:]), "max": max(warm)},
            "lag_s": {"p50": _percentile(self.lag_s, 50), "p99": _percentile(self.lag_s, 99), "max": max(self.lag_s)},
            "wal_behind_mb": {"p50": _percentile(self.lag_mb, 50), "max": max(self.lag_mb)},
        }


def main() -> int:
    """Flow, watch, compare."""
    seconds, rate = number("SOAK_SECONDS", 600), number("SOAK_RATE", 5000)
    with bed(DDL, tables=("public.flow",)) as made:
        made.capture.start()
        log = ProgressLog(made.settings.kafka, made.settings.pipeline)
        catch_up(made, log)
        flow = Flow(made.settings, rate)
        flow.start()
        began_s, samples, busy_s = time.monotonic(), Samples(), _cpu_s(made)
        _watch(made, log, samples, lambda: time.monotonic() - began_s < seconds and not flow.errors)
        lasted_s = time.monotonic() - began_s
        busy_s = _cpu_s(made) - busy_s
        flow.stop()
        stopped_s = time.monotonic()
        catch_up(made, log)
        behind_s = time.monotonic() - stopped_s
        copies = Copies(made.settings)
        found = copies.differences()
        log.close()
    measured = samples.result()
    result = {
        "seconds": round(lasted_s, 1),
        "rate_wanted": rate,
        "changes": flow.changes,
        "changes_per_s": round(flow.changes / lasted_s),
        "capture_cpu": round(busy_s / lasted_s, 3),
        **measured,
        "caught_up_after_s": round(behind_s, 2),
        "records": copies.records,
        "differences": found,
        "flat_memory": measured["rss_mb"]["last_third"] - measured["rss_mb"]["first_third"] <= GROWTH_MAX_MB,
        "bounded_lag": measured["lag_s"]["p99"] <= LAG_MAX_S,
    }
    write_result("soak", result)
    return 0 if not found and result["flat_memory"] and result["bounded_lag"] else 1


def _watch(made: Bed, log: ProgressLog, samples: Samples, goes_on: Callable[[], bool]) -> None:
    assert made.capture.process is not None
    process = psutil.Process(made.capture.process.pid)
    behind = (
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::float8 / 1048576 "
        "FROM pg_replication_slots WHERE slot_name = %s"
    )
    while goes_on():
        threading.Event().wait(SAMPLE_S)
        assert made.capture.alive, made.capture.text()[-3000:]
        boundary = log.boundary()
        assert boundary is not None
        row = made.admin.execute(behind.encode(), (made.settings.slot,)).fetchone()
        assert row is not None
        samples.rss_mb.append(round(process.memory_info().rss / 2**20, 1))
        samples.lag_s.append(round(max(0.0, time.time() - boundary.source_ts_us / 1e6), 3))
        samples.lag_mb.append(round(row[0], 2))
        if len(samples.rss_mb) % 30 == 0:
            say(f"{len(samples.rss_mb)} s: {samples.rss_mb[-1]} MB, lag {samples.lag_s[-1]} s, {samples.lag_mb[-1]} MB")


def _cpu_s(made: Bed) -> float:
    assert made.capture.process is not None
    times = psutil.Process(made.capture.process.pid).cpu_times()
    return float(times.user + times.system)


def _percentile(values: list[float], percent: int) -> float:
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 3)


if __name__ == "__main__":
    sys.exit(main())
