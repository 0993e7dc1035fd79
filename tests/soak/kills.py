"""Capture killed (SIGKILL) hundreds of times under load: after each, the topics are the tables, and the chain is whole.

KILLS, SEED: after how many to compare (those killed again in their start come on top), and which moments. Writes
bench/results/kills.json; exit 1 on any difference.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from random import Random
from statistics import quantiles
from typing import Any

from cdc.errors import TransientError
from cdc.progress_log import ProgressLog
from tests.soak.bed import Bed, bed, number, say, write_result
from tests.support.capturing import insert_lsn
from tests.support.equal import Copies
from tests.support.load import Load
from tests.support.pipelines import fill
from tests.support.wait import wait_until

CATCH_UP_S = 300.0
AGAIN = 0.25
"""How often a capture is killed again before it has come far: in its start, say."""


def main() -> int:
    """Kill, start, compare, and so on."""
    wanted, seed = int(number("KILLS", 200)), int(number("SEED", 20261118))
    random, began_s = Random(seed), time.monotonic()
    stopped = threading.Event()
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_of_signal, lambda *_: stopped.set())
    recovered: list[float] = []
    found: list[str] = []
    kills = rounds = transactions = 0
    with bed() as made:
        fill(made.admin)
        made.capture.start()
        log = ProgressLog(made.settings.kafka, made.settings.pipeline)
        catch_up(made, log)
        copies = Copies(made.settings)
        # Whoever loses patience gets what there is so far.
        while rounds < wanted and not found and not stopped.is_set():
            rounds += 1
            with Load(made.settings, random.getrandbits(32), pause_s=0.0005) as load:
                while True:
                    _moment(random.uniform(0.0, 1.5))
                    assert made.capture.alive, made.capture.text()[-3000:]
                    made.capture.kill()
                    killed_s = time.monotonic()
                    made.capture.start()
                    kills += 1
                    if random.random() >= AGAIN:
                        break
                _moment(random.uniform(0.0, 0.5))
            transactions += load.transactions
            catch_up(made, log)
            recovered.append(time.monotonic() - killed_s)
            found = copies.differences()
            done = f"{kills} kills, {rounds} comparisons, {transactions} transactions, {copies.records} records"
            say(f"{done}: {found or 'equal'}")
        log.close()
    result: dict[str, Any] = {
        "kills": kills,
        "comparisons": rounds,
        "seed": seed,
        "transactions": transactions,
        "records": copies.records,
        "seconds": round(time.monotonic() - began_s, 1),
        "recovered_s": {"p50": _percentile(recovered, 50), "p99": _percentile(recovered, 99), "max": max(recovered)},
        "differences": found,
    }
    write_result("kills", result)
    return 1 if found else 0


def _moment(seconds: float) -> None:
    # The moment is the input here, not something waited for.
    threading.Event().wait(seconds)


def catch_up(made: Bed, log: ProgressLog) -> None:
    """Until capture has written down everything committed so far."""
    end = insert_lsn(made.admin)

    def reached() -> bool:
        assert made.capture.alive, made.capture.text()[-3000:]
        try:
            boundary = log.boundary(0.02)
        except TransientError:
            return False
        return boundary is not None and boundary.lsn >= end

    wait_until(reached, timeout_s=CATCH_UP_S, what="capture to catch up")


def _percentile(values: list[float], percent: int) -> float:
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 3) if len(values) > 1 else values[0]


if __name__ == "__main__":
    sys.exit(main())
