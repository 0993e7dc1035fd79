"""Apply killed at random under load, in each of its phases; after every kill all views in all sinks are proved equal.

KILLS, SEED, SOAK_RATE (changes a second). Writes bench/results/apply_kills.json after every kill; exit 1 on any
difference. A signal ends it early, with what there is so far.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from cdc.cli.proving import sinks_of
from cdc.cli.views import named_views
from cdc.errors import CdcError
from jobs.prove import ControlHolder, prove
from tests.soak.bed import number, say, write_result
from tests.soak.orders import STILL, Writes
from tests.soak.planting import Delta
from tests.soak.proofs import running
from tests.support.pipelines import Pipeline
from tests.support.processes import Command

VIEWS: Final = {
    "paid_orders": "-- sinks: delta, cache\nSELECT id, customer, amount FROM orders WHERE paid",
    "basket": "-- sinks: search, cache\n"
    "SELECT o.id, o.amount, count(i.line) AS items, sum(i.quantity) AS pieces FROM orders o "
    "LEFT JOIN order_items i ON i.order_id = o.id GROUP BY o.id, o.amount",
    "large_baskets": "-- sinks: delta, cache\nSELECT id, pieces FROM basket WHERE pieces > 2",
    "totals": "SELECT paid, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY paid",
}
"""A view over two tables with followers, one on top of it, an aggregate, and one that is not a query."""
REBUILT: Final = ("basket", "large_baskets", "paid_orders", "public.orders")
PHASES: Final = (
    "swap",
    "repair",
    "maintenance",
    "rebuild",
    "refresh",
    "any",
    "refresh",
    "rebuild",
    "refresh",
    "repair",
)
"""In turn, so that a short run has seen all of them."""
OPENED_S: Final = 60.0
CAUGHT_UP_S: Final = 600.0
_MARK = re.compile(r"^@(begin|end) (\S+) (\S+) (#\d+)$", re.MULTILINE)


@dataclass
class Figures:
    """What was seen."""

    kills: int = 0
    wanted: Counter[str] = field(default_factory=Counter)
    hit: Counter[str] = field(default_factory=Counter)
    """By what was going on: the innermost phases that had begun and not ended."""
    recovered_s: list[float] = field(default_factory=list)
    proofs: int = 0
    rows: int = 0
    wrong: list[dict[str, Any]] = field(default_factory=list)


class Marks:
    """What apply's log says of its phases, since it was started last."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._from = log.stat().st_size

    def open(self) -> list[str]:
        """The phases that have begun and not ended."""
        with self._log.open("rb") as lines:
            lines.seek(self._from)
            text = lines.read().decode(errors="replace")
        found: dict[str, str] = {}
        for kind, phase, what, mark in _MARK.findall(text):
            if kind == "begin":
                found[mark] = f"{phase} {what}"
            else:
                found.pop(mark, None)
        return list(found.values())


def main() -> int:
    """Kill, start, prove, and so on."""
    random, figures, began_s = Random(int(number("SEED", 20261119))), Figures(), time.monotonic()
    stopped = threading.Event()
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_of_signal, lambda *_: stopped.set())
    with running(VIEWS) as pipeline:
        with_marks(pipeline)
        with Writes(pipeline.settings, number("SOAK_RATE", 200)) as writes:
            while figures.kills < int(number("KILLS", 100)) and not figures.wrong and not stopped.is_set():
                kill_once(pipeline, random, figures)
                write_result("apply_kills", result(figures, writes.rate, time.monotonic() - began_s))
                say(f"{figures.kills} kills: {dict(figures.hit)}, wrong: {figures.wrong}")
    return int(bool(figures.wrong))


def with_marks(pipeline: Pipeline) -> None:
    """Apply as it is, but telling what it does."""
    pipeline.apply.stop()
    pipeline.apply.module = "tests.soak.marked"
    pipeline.start_apply()


def kill_once(pipeline: Pipeline, random: Random, figures: Figures) -> None:
    """One phase, one kill, one proof of everything."""
    wanted = PHASES[figures.kills % len(PHASES)]
    marks = Marks(pipeline.apply.log)
    helper = begin(pipeline, random, wanted)
    wait_for(marks, wanted, random)
    assert pipeline.apply.alive, pipeline.apply.text()[-5000:]
    pipeline.apply.kill()
    killed_s = time.monotonic()
    figures.kills += 1
    figures.wanted[wanted] += 1
    figures.hit.update(innermost(marks.open()))
    pipeline.start_apply()
    if helper is not None:
        assert helper.process is not None
        helper.process.wait(CAUGHT_UP_S)
    pipeline.catch_up(int(CAUGHT_UP_S))
    figures.recovered_s.append(time.monotonic() - killed_s)
    if wanted == "repair":  # what was planted and not mended before the kill
        repaired = pipeline.run("prove", "--repair", timeout_s=CAUGHT_UP_S)
        assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    prove_all(pipeline, figures)


def begin(pipeline: Pipeline, random: Random, wanted: str) -> Command | None:
    """Have apply do what is to be interrupted, if it does not do so by itself."""
    if wanted in ("rebuild", "swap"):
        words: tuple[str, ...] = ("rebuild", random.choice(REBUILT[:3] if wanted == "swap" else REBUILT))
    elif wanted == "repair":
        for key in random.sample(list(STILL), 3):
            Delta(pipeline.settings, "basket").lose(key)
        words = ("prove", "--repair")
    else:
        return None
    return Command(pipeline.config, words, pipeline.apply.log.with_name("helper.log")).start()


def wait_for(marks: Marks, wanted: str, random: Random) -> None:
    """Until that phase has begun, and then some moment of it."""
    deadline = time.monotonic() + OPENED_S
    while wanted != "any" and time.monotonic() < deadline:
        if any(phase.split()[0] == wanted for phase in marks.open()):
            break
        threading.Event().wait(0.005)
    # The moment is the input here: swaps and commits are short, a refresh is not.
    threading.Event().wait(random.uniform(0.0, {"swap": 0.02, "maintenance": 0.2, "any": 10.0}.get(wanted, 1.0)))


def innermost(phases: list[str]) -> list[str]:
    """What is counted of the phases that are open: their kinds, without those that only hold others."""
    kinds = {phase.split()[0] for phase in phases}
    for outer, inner in (("batch", kinds - {"batch"}), ("refresh", kinds & {"write", "rebuild", "maintenance"})):
        if inner:
            kinds.discard(outer)
    for outer, inner in (("rebuild", kinds & {"swap"}), ("write", kinds & {"maintenance"})):
        if inner:
            kinds.discard(outer)
    for phase in phases:
        if phase.startswith("refresh "):
            kinds.add(f"in a query's {'table' if phase.endswith('/delta') else 'follower'}")
    return sorted(kinds) or ["between two batches"]


def prove_all(pipeline: Pipeline, figures: Figures) -> None:
    """All views in all sinks, while changes go on."""
    settings = pipeline.settings
    try:
        proofs = prove(settings, named_views(settings, []), sinks_of(settings), ControlHolder(settings))
    except CdcError as error:
        figures.wrong.append({"problem": error.message, "code": error.code})
        return
    figures.proofs += len(proofs)
    figures.rows += sum(proof.rows for proof in proofs)
    figures.wrong += [proof.to_json() for proof in proofs if not proof.holds]


def result(figures: Figures, rate: float, seconds: float) -> dict[str, Any]:
    """For bench/results."""
    return {
        "kills": figures.kills,
        "wanted": dict(figures.wanted.most_common()),
        "hit": dict(figures.hit.most_common()),
        "changes_per_s": round(rate),
        "recovered_s": {"p50": round(median(figures.recovered_s), 1), "max": round(max(figures.recovered_s), 1)},
        "proofs": figures.proofs,
        "rows_compared": figures.rows,
        "seconds": round(seconds),
        "wrong": figures.wrong,
    }


if __name__ == "__main__":
    sys.exit(main())
