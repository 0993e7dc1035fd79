"""The rules of upkeep, each broken by one edit, with a random view that shows it (tests/integration/test_upkeep.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from jobs.plan import render
from jobs.upkeep import affected, choice, joins, levels, lookups, narrow, planning, refresh
from tests.simulation.mutants import Edit

MODULES = (affected, choice, joins, levels, lookups, narrow, planning, refresh, render)


@dataclass(frozen=True)
class Mutant:
    """A broken rule; the view of `seed` goes wrong by it within four batches."""

    rule: str
    edit: Edit
    seed: int

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Break the rule wherever it is called from."""
        whole = getattr(self.edit.owner, self.edit.name)
        self.edit.apply(monkeypatch)
        edited = getattr(self.edit.owner, self.edit.name)
        for module in MODULES:
            if getattr(module, self.edit.name, None) is whole:
                monkeypatch.setattr(module, self.edit.name, edited)
        for table in (affected.RULES, render._RENDERED):
            for node, rule in table.items():
                if rule is whole:
                    monkeypatch.setitem(table, node, edited)


def _broken(seed: int, rule: str, owner: Any, name: str, old: str, new: str) -> Mutant:
    return Mutant(rule, Edit(owner, name, old, new), seed)


MUTANTS = [
    _broken(14, "only wanted columns are compared", affected, "_scan", "ordered(used)]", "ordered(wanted)]"),
    _broken(0, "old images are left out", affected, "_scan", "array({OLD}, {NEW})", "array({NEW})"),
    _broken(0, "new images are left out", affected, "_scan", "array({OLD}, {NEW})", "array({OLD})"),
    _broken(4, "NULL is no key", render, "keyed", "<=>", "="),
    _broken(83, "what a group's results read is not compared", affected, "_aggregate", "groups | read", "groups"),
    _broken(
        89, "rows in changed partitions are left out", affected, "_window", "if not wanted <= partition", "if False"
    ),
    _broken(185, "EXCEPT compares what is used", affected, "_set_operation", "is SetKind.UNION_ALL", "is not None"),
    _broken(
        80,
        "touched rows of later inputs are left out",
        joins,
        "_term",
        "if side in later else side.now",
        "if False else side.now",
    ),
    _broken(
        27, "only the first changed input counts", joins, "touched_join", "enumerate(changed)", "enumerate(changed[:1])"
    ),
    _broken(
        4,
        "a row that loses its match is left out",
        joins,
        "_outer_terms",
        "if turn.start_kept and of_other",
        "if False",
    ),
    _broken(
        12,
        "a row whose match is gone is left out",
        joins,
        "_outer_terms",
        "if turn.other_kept and of_start",
        "if False",
    ),
    _broken(
        175,
        "a full join keeps its left side alone",
        joins,
        "touched_outer_join",
        "other is left or node.full",
        "other is left",
    ),
    _broken(
        88,
        "touched rows of an outer join's other side are left out",
        joins,
        "_outer_terms",
        "other.both if turn.both",
        "other.both if False",
    ),
]
