"""How many changes a second a side keeps up with: the highest rung of a ladder at which its lag stays flat for long.

In: a Field, one side at work, transactions of 100 rows at a steady rate. Out: the rate of the highest rung that was
flat for a minute, and then for as long as asked. The lag of a moment is how long it took from then until a reader of
Delta saw all that capture had published.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.apply.field import Field
from bench.apply.result import Figures
from bench.apply.sides import Side
from bench.apply.versions import Ends
from bench.apply.works import memory, require_equal

FIRST_RATE = 2_000
STEP = 1.5
CLIMB_S = 60.0
ROWS = 100
_EVERY_S = 0.1
_SLACK_S = 1.0
_GROWTH = 1.3
_ATTAINED = 0.95


@dataclass(slots=True)
class Flow:
    """Updates of 100 scattered keys a transaction, so many rows a second; use as a context manager."""

    at: Field
    per_second: int
    rows: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Flow:
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _write(self) -> None:
        table, size = self.at.tables[0], self.at.rows
        with self.at.bench.connect(self.at.database) as connection:
            every, due = ROWS / self.per_second, time.monotonic()
            while not self._stop.is_set():
                time.sleep(max(0.0, due - time.monotonic()))
                self.at.marks += 1
                first = self.at.marks * 6_151 % size
                keys = f"SELECT 1 + ({first} + g * 7919) % {size} FROM generate_series(1, {ROWS}) g"  # noqa: S608
                connection.execute(
                    f"UPDATE {table} SET mark = {self.at.marks} WHERE id IN ({keys})".encode()  # noqa: S608
                )
                self.rows += ROWS
                due += every


def sustained(at: Field, seconds: float, *, target: str) -> Figures:
    """Each side climbs alone, and stays as high as it can."""
    figures = Figures("changes/s", target)
    lags: dict[str, list[tuple[int, float, float]]] = {}
    with memory(at, figures):
        for side in at.sides:
            lags[side.name] = seen = []
            rates = [FIRST_RATE]
            while (lag := _flat_lag(at, side, rates[-1], min(CLIMB_S, seconds))) is not None:
                seen.append((rates[-1], min(CLIMB_S, seconds), round(lag, 2)))
                rates.append(int(rates[-1] * STEP))
            while len(rates) > 1 and not figures.of(side.name):
                rates.pop()
                if (lag := _flat_lag(at, side, rates[-1], seconds)) is not None:
                    seen.append((rates[-1], seconds, round(lag, 2)))
                    figures.of(side.name)[:] = [float(rates[-1])]
    for side in at.sides:
        side.turn(at.ends())
    require_equal(at)
    figures.more = {"seconds": seconds, "rate_seconds_lag": lags}
    return figures


def _flat_lag(at: Field, side: Side, rate: int, seconds: float) -> float | None:
    """The median lag at the end; None when it grows, or when the source itself does not give so much."""
    table = at.tables[0]
    at.publish("SELECT 1")
    side.turn(at.ends())
    side.go()
    published: list[tuple[float, Ends]] = []
    with Flow(at, rate) as flow:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            at.progress()
            published.append((time.monotonic(), at.ends(table)[table]))
            side.look(table)
            time.sleep(_EVERY_S)
        attained = flow.rows / (time.monotonic() - began)
    at.publish("SELECT 1")
    side.wait_for(at.ends(table))
    time.sleep(1)
    side.hold()
    seen = [(each.at_s, each.ends) for each in side.versions[table].seen]
    lags = [_lag(moment, ends, seen) for moment, ends in published]
    third = len(lags) // 3
    middle, last = median(lags[third : 2 * third]), median(lags[2 * third :])
    is_flat = last <= middle * _GROWTH + _SLACK_S and attained >= rate * _ATTAINED
    return last if is_flat else None


def _lag(moment: float, ends: Ends, seen: Sequence[tuple[float, Ends]]) -> float:
    first = bisect.bisect_left(seen, sum(ends), key=lambda version: sum(version[1]))
    return max(0.0, seen[first][0] - moment)
