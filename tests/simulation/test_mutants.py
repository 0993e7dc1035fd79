"""Each rule of the protocol, broken: the simulation notices within a few seeds."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.mutants import APPLY, CAPTURE, Mutant
from tests.simulation.scenario import simulate
from tests.simulation.world import Violation

SEEDS_MAX: Final = 150


@pytest.mark.parametrize("mutant", CAPTURE + APPLY, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    for edit in mutant.edits:
        edit.apply(monkeypatch)

    with pytest.raises(Violation):
        for seed in range(SEEDS_MAX):
            simulate(seed, mutant.faults)
