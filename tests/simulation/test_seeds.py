"""The simulation over many seeds. AFTERIMAGE_SEEDS says how many (1,000), AFTERIMAGE_SEED runs one alone."""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

import pytest

from jobs.refresh.ways import Way
from tests.simulation.editing import Changes
from tests.simulation.scenario import simulate, simulate_one_fault
from tests.simulation.world import FAULTS, FILE_EVENTS, NEW_FILE_EVENTS, QUERY_EVENTS, TABLE_EVENTS

SEEDS: Final = int(os.environ.get("AFTERIMAGE_SEEDS", "1000"))
ONE: Final = os.environ.get("AFTERIMAGE_SEED")
FEW: Final = 300
"""Of fewer seeds nobody can ask that everything happened in them."""

SHORT: Final = 400
FATAL: Final = (
    "capture killed",
    "replication connection cut",
    "produce refused",
    "acknowledgements time out",
    "commit request lost",
    "commit request late",
    "commit reply lost",
    "apply killed",
    "delta reply lost",
    "delta conflict",
    "store request late",
)
"""Enumerated, not drawn: each of them at every place where it can strike."""

REBUILT: Final = ((37, "known"), (12, "pieces"), (33, "rich"))
"""In these seeds the view is swapped while faults go on."""

CHANGED: Final = (
    (6, Changes("known")),
    (90, Changes("pieces")),
    (10, Changes("rich")),
    (6, Changes(added=("few",))),
    (10, Changes(added=("most", "best"))),
    (90, Changes("pieces", ("most",))),
    (6, Changes(other=("known", "search"))),
    (10, Changes(other=("rich", "search"))),
)
"""In these view files change, or come, after the first batch, and what they say then is shown while faults go on."""

EVENTS: Final = (
    *FAULTS,
    *TABLE_EVENTS,
    *QUERY_EVENTS,
    *FILE_EVENTS,
    *NEW_FILE_EVENTS,
    *(f"table {what}" for what in ("is copied", "joined", "given up")),
    "looked at tables again",
    *(f"published {kind}" for kind in ("snapshot", "stream", "idle", "part")),
    "committed, not visible yet",
    "row of a chunk published",
    "chunk read again",
    "table read to its end",
    *(f"capture starts: {start}" for start in ("snapshot", "snapshot again", "stream")),
    *(f"apply may: {step}" for step in ("Run", "Stand", "RunTo")),
    *(f"task: {mode} {sink}" for mode in ("write", "replace", "advance") for sink in ("delta", "search", "cache")),
    *(f"truncate: write {sink}" for sink in ("delta", "search", "cache")),
    *(f"refresh: {how}" for how in ("unchanged", "by keys", "in full")),
    *(f"{what} {way.value}" for what in ("relation:", "follow:") for way in Way),
    *("change loads", "change fails", "changed view", "changed group"),
    *(f"changed: {sink} row-wise" for sink in ("delta", "search", "cache")),
    *(f"changed: {sink} query" for sink in ("delta", "search", "cache")),
    *("new view", "new group", "change waits", "read from tables", "read from topics"),
    *(
        "sinks of view",
        "sink of search row-wise",
        "sink of cache row-wise",
        "sink of search query",
        "sink of cache query",
    ),
    *(f"new: {sink} {kind}" for sink in ("delta", "search", "cache") for kind in ("row-wise", "query")),
    *("rebuild loads", "rebuild loaded", *(f"swapped: {sink} row-wise" for sink in ("delta", "search", "cache"))),
    *(f"swapped: {sink} query" for sink in ("delta", "search", "cache")),
    *("caught up: write", "query fails", "query waits", "query left alone"),
    *("streamed and committed", "streamed and rolled back", "savepoint rolled back"),
    *(f"process ended: {code}" for code in ("FENCED", "SLOT_IN_USE", "APPLY_TAKEN_OVER")),
)


@pytest.mark.timeout(0)
def test_seeds_hold_whatever_fails_and_meet_every_fault():
    counts: Counter[str] = Counter()
    seeds = range(SEEDS) if ONE is None else [int(ONE)]
    for seed in seeds:
        counts += simulate(seed).counts
    if len(seeds) >= FEW:
        assert [event for event in EVENTS if not counts[event]] == []


@pytest.mark.parametrize("kind", FATAL)
@pytest.mark.parametrize("seed", [1, 23, 25])
def test_every_single_place_of_a_fault_is_survived(kind: str, seed: int):
    chances = simulate_one_fault(seed, kind, 0, SHORT).chances
    assert chances > 0

    for number in range(1, chances + 1):
        simulate_one_fault(seed, kind, number, SHORT)


@pytest.mark.parametrize(
    "kind", ["apply killed", "delta reply lost", "delta conflict", "store request late", "store lost"]
)
@pytest.mark.parametrize(("seed", "view"), REBUILT)
def test_every_single_place_of_a_fault_in_a_rebuild_is_survived(kind: str, seed: int, view: str):
    world = simulate_one_fault(seed, kind, 0, SHORT, view)
    assert any(count for what, count in world.counts.items() if what.startswith("swapped"))

    for number in range(1, world.chances + 1):
        simulate_one_fault(seed, kind, number, SHORT, view)


@pytest.mark.parametrize(
    "kind", ["apply killed", "delta reply lost", "delta conflict", "store request late", "store lost"]
)
@pytest.mark.parametrize(("seed", "changes"), CHANGED)
def test_every_single_place_of_a_fault_in_a_change_is_survived(kind: str, seed: int, changes: Changes):
    world = simulate_one_fault(seed, kind, 0, SHORT, changes=changes)
    what = "new and changed" if changes.edited and changes.added else "changed" if changes.edited else "new"
    what = "sinks of" if changes.other else what
    assert any(world.counts[f"{what} {number}"] for number in ("view", "group"))

    for number in range(1, world.chances + 1):
        simulate_one_fault(seed, kind, number, SHORT, changes=changes)


def test_a_seed_repeats_itself():
    first, second = simulate(7), simulate(7)

    assert list(first.trace) == list(second.trace)
    assert first.counts == second.counts


def test_another_seed_is_another_run():
    assert list(simulate(7).trace) != list(simulate(8).trace)
