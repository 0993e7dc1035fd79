"""How many changes a second a side keeps up with: the highest rung of a ladder at which its lag stays flat for long.

In: a Field, one side at work, transactions of 100 rows at a steady rate: replayed, since on two cores Postgres and
capture, which other machines run elsewhere, would be what is measured. Out: the rate of the highest rung that was
flat for a minute, and then for as long as asked. The lag of a moment is how long it took from then until a reader of
Delta saw all that capture had published.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence
from statistics import median

from rich.console import Console

from bench.apply.field import Field
from bench.apply.replayed import Replayed, replayed
from bench.apply.result import Figures
from bench.apply.sides import Side
from bench.apply.versions import Ends
from bench.apply.works import memory, require_equal

FIRST_RATE = 44_000
STEP = 1.3
RUNGS_BELOW = 8
CLIMB_S = 60.0
_EVERY_S = 0.1
_SLACK_S = 1.0
_ATTAINED = 0.95
_say = Console(stderr=True, highlight=False).print


def sustained(at: Field, seconds: float, *, target: str) -> Figures:
    """Each side climbs alone, and stays as high as it can."""
    figures = Figures("changes/s", target)
    lags: dict[str, list[tuple[int, float, float]]] = {}
    with replayed(at) as source, memory(at, figures):
        # The slower one first: to take what the other was given would keep it busy for longer than all of this.
        for side in reversed(at.sides):
            highest, lags[side.name] = _climbed(source, side, seconds)
            figures.of(side.name)[:] = [float(highest)] if highest else []
            side.turn(at.ends())
            source.into_postgres()
            require_equal(at, side)
    figures.more = {"seconds": seconds, "rate_seconds_lag": lags}
    return figures


def _climbed(source: Replayed, side: Side, seconds: float) -> tuple[int, list[tuple[int, float, float]]]:
    """The highest rate that it held, 0 if none of those tried; each rung that it held with its seconds and its lag."""
    seen: list[tuple[int, float, float]] = []
    rates, climb = [FIRST_RATE], min(CLIMB_S, seconds)
    # A minute is short for batches of twenty seconds, so what looks like little is climbed past: the long run says.
    while (lag := _flat_lag(source, side, rates[-1], climb, growth=1.3, lag_max=climb)) is not None:
        seen.append((rates[-1], climb, round(lag, 2)))
        rates.append(int(rates[-1] * STEP))
    below = (int(FIRST_RATE / STEP**rung) for rung in range(1, RUNGS_BELOW + 1))
    for rate in (*reversed(rates[:-1]), *below):
        if (lag := _flat_lag(source, side, rate, seconds, growth=1.1, lag_max=seconds / 3)) is not None:
            return rate, [*seen, (rate, seconds, round(lag, 2))]
    return 0, seen


def _flat_lag(
    source: Replayed, side: Side, rate: int, seconds: float, *, growth: float, lag_max: float
) -> float | None:
    """The median lag at the end; None when it grows, or when the source itself does not give so much."""
    at, table = source.at, source.at.tables[0]
    at.progress()
    side.turn(at.ends())
    side.go()
    published: list[tuple[float, Ends]] = []
    with source.flowing(rate):
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            at.progress()
            published.append((time.monotonic(), at.ends(table)[table]))
            side.look(table)
            time.sleep(_EVERY_S)
        attained = source.written / (time.monotonic() - began)
    at.progress()
    side.wait_for(at.ends(table))
    time.sleep(1)
    side.hold()
    seen = [(each.at_s, each.ends) for each in side.versions[table].seen]
    lags = [_lag(moment, ends, seen) for moment, ends in published]
    third = len(lags) // 3
    middle, last = median(lags[third : 2 * third]), median(lags[2 * third :])
    _say(f"{side.name}: {rate:,}/s wanted, {attained:,.0f}/s written, lag {middle:.1f} s, then {last:.1f} s")
    # Of a lag that is as long as a third of the time, nobody can say whether it grows.
    is_flat = last <= min(middle * growth + _SLACK_S, lag_max) and attained >= rate * _ATTAINED
    return last if is_flat else None


def _lag(moment: float, ends: Ends, seen: Sequence[tuple[float, Ends]]) -> float:
    first = bisect.bisect_left(seen, sum(ends), key=lambda version: sum(version[1]))
    return max(0.0, seen[first][0] - moment)
