"""Each rule of the protocol, broken: the simulation notices, most of them within a few seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from tests.simulation.apply_rules import APPLY
from tests.simulation.capture_rules import CAPTURE
from tests.simulation.chunk_rules import CHUNKS
from tests.simulation.mutants import Mutant
from tests.simulation.query_rules import QUERIES, STOPPED
from tests.simulation.rebuild_rules import CHANGES, NEW_VIEWS, REBUILDS
from tests.simulation.scenario import simulate
from tests.simulation.table_rules import TABLES
from tests.simulation.world import TABLE_EVENTS, Violation

SEEDS_MAX: Final = 2_000


QUIET: Final = dict.fromkeys(TABLE_EVENTS, 0.0)
"""What has nothing to do with tables that stop shows sooner where none does."""


@pytest.mark.parametrize(
    "mutant",
    CAPTURE + CHUNKS + APPLY + QUERIES + REBUILDS + CHANGES + NEW_VIEWS,
    ids=lambda mutant: mutant.rule,
)
def test_a_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant.edit.apply(monkeypatch)

    with pytest.raises(Violation):
        simulate_all({**QUIET, **mutant.faults})


@pytest.mark.parametrize("mutant", TABLES + STOPPED, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_about_tables_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant.edit.apply(monkeypatch)

    with pytest.raises(Violation):
        simulate_all(mutant.faults)


def simulate_all(rates: Mapping[str, float]) -> None:
    for seed in range(SEEDS_MAX):
        simulate(seed, rates)
