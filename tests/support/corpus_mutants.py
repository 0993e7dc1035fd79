"""Rules of translation and of upkeep, each broken by one edit, with a view of the shop and a batch that show it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from jobs.declare import ordering, quotients, windows
from jobs.plan import render
from jobs.upkeep import lookups, tallying
from tests.simulation.mutants import Edit

ROWS = """
INSERT INTO customers VALUES (1, 'Ann', 'Rome', true, 5.00, '2024-02-29', NULL), (2, 'Bob', NULL, false, 7.00, NULL, 1);
INSERT INTO products VALUES ('p1', 'Pen', 'tool', 1.00, 1);
INSERT INTO orders (id, customer_id, status, total) VALUES
    (1, 1, 'paid', 10.00), (2, 1, 'paid', 20.00), (3, 2, 'new', 30.00), (4, NULL, 'sent', NULL), (5, 3, 'sent', 1.00),
    (6, 1, 'new', 5.00), (7, 1, 'paid', 30.00), (8, 2, 'sent', 20.00), (9, 2, 'sent', 0.00);
INSERT INTO events (id, customer_id, kind, amount) VALUES
    (1, 1, 'click', NULL), (2, 2, 'click', 3), (3, 2, 'view', 1), (4, NULL, 'view', 2);
"""


@dataclass(frozen=True)
class Mutant:
    """A broken rule; the view goes wrong by it, at once or after the batch."""

    rule: str
    edit: Edit
    view: str
    batch: str

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Break the rule wherever it is called from."""
        whole = getattr(self.edit.owner, self.edit.name)
        self.edit.apply(monkeypatch)
        edited = getattr(self.edit.owner, self.edit.name)
        for name, module in list(sys.modules.items()):
            if name.startswith("jobs.") and getattr(module, self.edit.name, None) is whole:
                monkeypatch.setattr(module, self.edit.name, edited)


def _broken(rule: str, owner: Any, name: str, old: str, new: str, view: str, batch: str = "") -> Mutant:
    return Mutant(rule, Edit(owner, name, old, new), view, batch)


MUTANTS = [
    _broken(
        "a NULL in NOT IN is like any other value",
        lookups,
        "_match",
        "return same, *of_null",
        "return (same,)",
        "not_in_nulls",
        "UPDATE orders SET status = 'paid' WHERE id = 4",
    ),
    _broken(
        "only the columns that link count of an inner row",
        lookups,
        "_linked_by",
        "planning.touched(core, read, inside)",
        "planning.touched(core, read, read)",
        "scalar_linked",
        "UPDATE orders SET total = 90 WHERE id = 1",
    ),
    _broken(
        "an answer for all rows never flips",
        lookups,
        "_by_flip",
        "NOT (was <=> now)",
        "FALSE",
        "exists_uncorrelated",
        "UPDATE orders SET total = 90 WHERE id = 1",
    ),
    _broken("IN is never NULL", render, "among", "THEN NULL ELSE FALSE", "THEN FALSE ELSE FALSE", "in_as_value"),
    _broken("NULLs come first", ordering, "direction", "else bool(first)", "else not first", "window_ranks"),
    _broken("a quotient has 12 digits", quotients, "quotient", "greatest(16 -", "greatest(12 -", "group_average"),
    _broken(
        "equal first digits make a larger quotient",
        quotients,
        "quotient",
        "c.f1 <= c.f2",
        "c.f1 < c.f2",
        "group_average",
    ),
    _broken("a quotient is cut off", quotients, "_divided", "s.r * 2 >= b.u2, 1, 0", "s.r < 0, 1, 0", "group_average"),
    _broken(
        "what went counts as if it came",
        tallying,
        "_gathered",
        "IF({sign} < 0, -{name}, {name})",
        "{name}",
        "group_filter",
        "DELETE FROM orders WHERE id = 1",
    ),
    _broken(
        "old images are forgotten",
        tallying,
        "_images",
        "((-1, OLD), (1, NEW))",
        "((1, NEW),)",
        "group_filter",
        "UPDATE orders SET total = 25 WHERE id = 2",
    ),
    _broken(
        "a group without rows is kept",
        tallying,
        "rows_sql",
        ".sql} > 0",
        ".sql} >= 0",
        "group_filter",
        "DELETE FROM orders WHERE customer_id = 3",
    ),
    _broken(
        "a sum of no values is 0",
        tallying,
        "_result",
        ".sql} > 0, CAST",
        ".sql} >= 0, CAST",
        "group_filter",
        "UPDATE orders SET total = 1 WHERE id = 3",
    ),
    _broken(
        "an extreme is never lost",
        tallying,
        "_is_told",
        " OR {stays})",
        " OR TRUE)",
        "group_sums",
        "DELETE FROM orders WHERE id = 6",
    ),
    _broken(
        "a pair of which both sides changed counts twice",
        tallying,
        "_placed",
        "if node in was else node",
        "if node in () else node",
        "group_three",
        "UPDATE orders SET customer_id = 1 WHERE id = 4; INSERT INTO items VALUES (4, 1, 'p1', 1, 2.50, 0)",
    ),
    _broken("windows of an average are all rows", windows, "_windowed", "OVER ({over.sql})", "OVER ()", "window_share"),
]
