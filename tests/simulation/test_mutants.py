"""Each rule of the protocol, broken: the simulation notices within a few seeds."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.apply_rules import APPLY
from tests.simulation.capture_rules import CAPTURE
from tests.simulation.chunk_rules import CHUNKS
from tests.simulation.mutants import Mutant
from tests.simulation.scenario import simulate
from tests.simulation.world import Violation

SEEDS_MAX: Final = 300


@pytest.mark.parametrize("mutant", CAPTURE + CHUNKS + APPLY, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant.edit.apply(monkeypatch)

    with pytest.raises(Violation):
        simulate_all(mutant)


def simulate_all(mutant: Mutant) -> None:
    for seed in range(SEEDS_MAX):
        simulate(seed, mutant.faults)
