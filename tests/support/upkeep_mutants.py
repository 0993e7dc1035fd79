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
    _broken(0, "only wanted columns are compared", affected, "_scan", "ordered(used)]", "ordered(wanted)]"),
    _broken(0, "old images are left out", affected, "_scan", "array({OLD}, {NEW})", "array({NEW})"),
    _broken(0, "new images are left out", affected, "_scan", "array({OLD}, {NEW})", "array({OLD})"),
    _broken(0, "NULL is no key", render, "keyed", "<=>", "="),
    _broken(0, "what a group's results read is not compared", affected, "_aggregate", "groups | read", "groups"),
    _broken(
        0, "rows in changed partitions are left out", affected, "_window", "if not wanted <= partition", "if False"
    ),
    _broken(0, "EXCEPT compares what is used", affected, "_set_operation", "is SetKind.UNION_ALL", "is not None"),
    _broken(
        0,
        "touched rows of later inputs are left out",
        joins,
        "_term",
        "if side in later else side.now",
        "if False else side.now",
    ),
    _broken(
        0, "only the first changed input counts", joins, "touched_join", "enumerate(changed)", "enumerate(changed[:1])"
    ),
    _broken(
        0,
        "a row that loses its match is left out",
        joins,
        "_outer_terms",
        "if turn.start_kept and of_other",
        "if False",
    ),
    _broken(
        0, "a row whose match is gone is left out", joins, "_outer_terms", "if turn.other_kept and of_start", "if False"
    ),
    _broken(
        0,
        "a full join keeps its left side alone",
        joins,
        "touched_outer_join",
        "other is left or node.full",
        "other is left",
    ),
    _broken(
        0,
        "touched rows of an outer join's other side are left out",
        joins,
        "_outer_terms",
        "other.both if turn.both",
        "other.both if False",
    ),
    _broken(0, "IN forgets its NULLs", lookups, "_matches", "strict=node.strict", "strict=True"),
    _broken(
        0,
        "only what links is compared in a nested query",
        lookups,
        "_by_link",
        "(linked.core, read, inside)",
        "(linked.core, read, read)",
    ),
    _broken(0, "what links an outer row is not compared", lookups, "touched_lookup", "(used | own)", "used"),
    _broken(
        0,
        "a nested query's answer is not compared",
        lookups,
        "touched_lookup",
        "if asked and planning",
        "if False and planning",
    ),
    _broken(0, "ranked values link", lookups, "_matches", "or ranked", "or False"),
    _broken(
        0,
        "keys of the side that may be NULL are pushed into it",
        narrow,
        "_outer_join",
        "_own(node.right, spread)",
        "_own(node.right, {**spread, **known})",
    ),
    _broken(0, "a full join is narrowed as a left one", narrow, "_outer_join", "if node.full", "if False"),
    _broken(
        0,
        "keys are pushed below a limit",
        narrow,
        "narrow",
        "            return node\n",
        "            return replace(node, input=narrow(node.input, known))\n",
    ),
    _broken(
        0,
        "keys are pushed below windows over other partitions",
        narrow,
        "narrow",
        "if all(c in call.partition for call in node.calls)",
        "if True",
    ),
    _broken(0, "NOT IN is narrowed", narrow, "_query", "and node.strict", ""),
    _broken(
        0,
        "results are free",
        levels,
        "level",
        "if column in node.groups else Level.RESULT",
        "if column in node.groups else Level.FREE",
    ),
    _broken(
        0,
        "a window's results are free",
        levels,
        "_beside_windows",
        "return Level.RESULT\n    below",
        "return Level.FREE\n    below",
    ),
]
