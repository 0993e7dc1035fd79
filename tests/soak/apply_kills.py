"""Apply killed at random under load, in each of its phases; after every kill all views in all sinks are proved equal.

KILLS, SEED, SOAK_RATE (changes a second), MARKS=1 for delta.deletion_vectors, ADD=1 to add to earlier runs. Writes
bench/results/apply_kills.json after every kill; exit 1 on any difference. A signal ends it early. QUIET_FILE: nothing
begins while it exists.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from subprocess import TimeoutExpired
from typing import Any, Final

from cdc.cli.proving import sinks_of
from cdc.cli.views import live_named_views
from cdc.errors import CdcError
from cdc.settings import Settings
from jobs.prove import ControlHolder, prove
from tests.soak.bed import number, say, write_run
from tests.soak.declared import OTHERWISE, VIEWS, await_declared, declare_otherwise
from tests.soak.marked import ORDER
from tests.soak.orders import STILL, Writes
from tests.soak.planting import EXTRA, Cache, Delta, Search
from tests.soak.proofs import running
from tests.support.pipelines import Pipeline
from tests.support.processes import Command

SINKS_OF: Final = {
    "basket": ("delta", "search", "cache"),
    "large_baskets": ("delta", "cache"),
    "paid_orders": ("delta", "search", "cache"),
    "public.orders": ("delta",),
    "totals": ("delta",),
}
BACK_DOORS: Final[dict[str, Callable[[Settings], Any]]] = {"delta": Delta, "search": Search, "cache": Cache}
PHASES: Final = (
    "load",
    "repair",
    "vacuum",
    "swap-delta",
    "refresh",
    "sort",
    "catch-up",
    "swap-search",
    "mend-delta",
    "write-delta",
    "checkpoint",
    "swap-cache",
    "gate",
    "mend-search",
    "compact",
    "write-search",
    "swap-delta",
    "mend-cache",
    "tidy",
    "any",
    "swap",
    "ledger",
    "load",
    "write-cache",
    "mirror",
)
"""What is to be interrupted, in turn, so that a short run has seen all of it (tests.soak.marked)."""
OUTER: Final = {
    "batch": None,
    "catch-up": None,
    "mirror": None,
    "refresh": None,
    "repair": {"mend-delta", "mend-search", "mend-cache", "ledger"},
    "tidy": {"compact", "sort", "vacuum", "checkpoint", "cleanup"},
    "swap": {"swap-delta", "swap-search", "swap-cache"},
    "load": {"replace-delta", "replace-search", "replace-cache"},
}
"""Phases that hold others (None: any): they count where none of these is open."""
CHANGED_SHARE: Final = 0.5
"""Of the loads that need not be proved first, so many are asked for by changing a view's file."""
COUNTED: Final = ("kills", "changed", "proofs", "rows_compared", "wanted", "hit", "wrong")
OPENED_S: Final = 120.0
CAUGHT_UP_S: Final = 600.0
_MARK = re.compile(r"^@(begin|end) (\S+) (\S+) (#\d+)(?: (\S+))?$", re.MULTILINE)


@dataclass
class Figures:
    """What was seen."""

    kills: int = 0
    wanted: Counter[str] = field(default_factory=Counter)
    hit: Counter[str] = field(default_factory=Counter)
    """By what was going on: the innermost phases that had begun and not ended."""
    places: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    """How many were killed while a changed declaration was loaded or shown."""
    recovered_s: list[float] = field(default_factory=list)
    proofs: int = 0
    rows: int = 0
    wrong: list[dict[str, Any]] = field(default_factory=list)
    lasted: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """How long the phases take, in seconds: a kill falls into any moment of them."""


class Marks:
    """What apply's log says of its phases, since it was started last."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._from = log.stat().st_size

    def open(self, lasted: dict[str, list[float]]) -> dict[str, str]:
        """The phases that have begun and not ended, each with what; and how long those took that ended."""
        with self._log.open("rb") as lines:
            lines.seek(self._from)
            text = lines.read().decode(errors="replace")
        found: dict[str, tuple[str, str]] = {}
        for kind, phase, what, mark, seconds in _MARK.findall(text):
            if kind == "begin":
                found[mark] = phase, what
            else:
                found.pop(mark, None)
                lasted[phase].append(float(seconds))
        return dict(found.values())


def main() -> int:
    """Kill, start, prove, and so on."""
    random, figures, began_s = Random(int(number("SEED", 20261119))), Figures(), time.monotonic()
    stopped = threading.Event()
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_of_signal, lambda *_: stopped.set())
    with running(VIEWS, marks="MARKS" in os.environ) as pipeline:
        order = with_marks(pipeline)
        with Writes(pipeline.settings, number("SOAK_RATE", 200)) as writes:
            while figures.kills < int(number("KILLS", 100)) and not figures.wrong and not stopped.is_set():
                writes.await_quiet()
                kill_once(pipeline, random, order, figures)
                write_run("apply_kills", result(figures, writes.rate, time.monotonic() - began_s), COUNTED)
                say(f"{figures.kills} kills: {dict(figures.hit)}, wrong: {figures.wrong}")
    return int(bool(figures.wrong))


def with_marks(pipeline: Pipeline) -> Path:
    """Apply as it is, but telling what it does; the file by which it is told when to die."""
    order = pipeline.config.with_name("kill-order")
    pipeline.apply.stop()
    pipeline.apply.module = "tests.soak.marked"
    pipeline.apply.environment = {ORDER: str(order)}
    pipeline.start_apply()
    return order


def kill_once(pipeline: Pipeline, random: Random, order: Path, figures: Figures) -> None:
    """One phase, one kill, one proof of everything."""
    wanted = PHASES[figures.kills % len(PHASES)]
    marks = Marks(pipeline.apply.log)
    whole_s = min(10.0, median(figures.lasted.get(wanted) or [1.0]))
    make(order, wanted, random.uniform(0.0, 10.0 if wanted == "any" else whole_s))
    helper = begin(pipeline, random, wanted, figures)
    await_death(pipeline, random, wanted)
    killed_s = time.monotonic()
    hit = innermost(marks.open(figures.lasted))
    figures.kills += 1
    figures.wanted[wanted] += 1
    figures.hit.update(hit.keys())
    figures.places.update(f"{phase} {what}" for phase, what in hit.items() if "/" in what)
    order.unlink(missing_ok=True)
    pipeline.start_apply()
    if helper is not None:
        assert helper.process is not None
        if helper.process.wait(CAUGHT_UP_S):
            figures.wrong.append({"command": helper.words, "exit": helper.process.returncode, "log": str(helper.log)})
    pipeline.catch_up(int(CAUGHT_UP_S))
    await_declared(pipeline, CAUGHT_UP_S)
    figures.recovered_s.append(time.monotonic() - killed_s)
    prove_all(pipeline, figures)


def make(order: Path, wanted: str, delay_s: float) -> None:
    """All of it at once: apply looks for it all the time."""
    written = order.with_suffix(".new")
    written.write_text(f"{'batch' if wanted == 'any' else wanted} {delay_s:.4f}")
    written.rename(order)


def begin(pipeline: Pipeline, random: Random, wanted: str, figures: Figures) -> Command | None:
    """Have apply do what is to be interrupted, if it does not do so by itself."""
    sink = wanted.rpartition("-")[2]
    if wanted in ("load", "catch-up", "gate", "swap", "swap-delta", "swap-search", "swap-cache"):
        proved = wanted in ("gate", "catch-up") or random.random() < 0.2
        view = random.choice([name for name, sinks in SINKS_OF.items() if sink in sinks or "-" not in wanted or proved])
        if view in OTHERWISE and not proved and random.random() < CHANGED_SHARE:
            declare_otherwise(pipeline, view)
            figures.changed += 1
            return None
        words: tuple[str, ...] = ("rebuild", view, *(["--prove"] if proved else []))
    elif wanted == "repair" or wanted.startswith("mend-"):
        where = sink if wanted != "repair" else random.choice(list(BACK_DOORS))
        plant(pipeline, random, where)
        words = ("prove", "--repair", "paid_orders")
    else:
        return None
    return Command(pipeline.config, words, pipeline.apply.log.with_name("helper.log")).start()


def plant(pipeline: Pipeline, random: Random, sink: str) -> None:
    """A few wrong rows of those that nobody writes."""
    back_door = BACK_DOORS[sink](pipeline.settings)
    lost, wrong, extra = random.sample(list(STILL), 3)
    back_door.lose(lost)
    back_door.change(wrong, "customer", "nobody")
    back_door.copy(extra, EXTRA + extra)


def await_death(pipeline: Pipeline, random: Random, wanted: str) -> None:
    """By the order; else, if that phase is not entered, by a signal at some moment."""
    assert pipeline.apply.process is not None
    try:
        pipeline.apply.process.wait(OPENED_S)
    except TimeoutExpired:
        say(f"{wanted} was not entered in {OPENED_S:g} s")
        threading.Event().wait(random.uniform(0.0, 5.0))  # the moment is the input here
        pipeline.apply.kill()
    status = pipeline.apply.process.returncode
    assert status == -signal.SIGKILL, pipeline.apply.text()[-5000:]


def innermost(phases: dict[str, str]) -> dict[str, str]:
    """What is counted of the phases that are open: without those that only hold others."""
    kinds = set(phases)
    holders = {outer for outer, inner in OUTER.items() if (kinds - set(OUTER) if inner is None else kinds & inner)}
    return {kind: what for kind, what in phases.items() if kind not in holders} or {"between two batches": ""}


def prove_all(pipeline: Pipeline, figures: Figures) -> None:
    """All views in all sinks, while changes go on."""
    settings = pipeline.settings
    try:
        proofs = prove(settings, live_named_views(settings, []), sinks_of(settings), ControlHolder(settings))
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
        "changed": figures.changed,
        "deletion_vectors": "MARKS" in os.environ,
        "wanted": dict(figures.wanted.most_common()),
        "hit": dict(figures.hit.most_common()),
        "places": dict(sorted(figures.places.items())),
        "seed": int(number("SEED", 20261119)),
        "changes_per_s": round(rate),
        "recovered_s": {"p50": round(median(figures.recovered_s), 1), "max": round(max(figures.recovered_s), 1)},
        "proofs": figures.proofs,
        "rows_compared": figures.rows,
        "seconds": round(seconds),
        "wrong": figures.wrong,
    }


if __name__ == "__main__":
    sys.exit(main())
