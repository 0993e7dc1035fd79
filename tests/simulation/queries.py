"""The queries of the simulated pipeline: one over two tables, and three above it; all with a sink that follows.

In: rows of what a query reads. Out: its rows, all or those of some keys. A row that divides by zero, so to speak, is
Failed: no view may stand where its query fails.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from jobs.batch import TABLE, Target
from tests.simulation.source import State
from tests.simulation.tables import ACCOUNTS, LINES, OIDS, TOPICS, Values

Rows = Mapping[str, Values]

BELOW: Final = (TOPICS[ACCOUNTS.oid], TOPICS[LINES.oid])
RELATIONS: Final = {"pieces": ("accounts", "lines"), "rich": ("pieces",), "most": ("pieces",), "best": ("most",)}
QUERIES: Final = (
    Target("pieces", TABLE, "", 1, BELOW, RELATIONS["pieces"]),
    Target("pieces", "cache", "", 2, BELOW, ("pieces",)),
    Target("rich", TABLE, "", 3, BELOW, RELATIONS["rich"]),
    Target("rich", "search", "", 4, BELOW, ("rich",)),
)
ADDED_QUERIES: Final = (
    Target("most", TABLE, "", 3, BELOW, RELATIONS["most"]),
    Target("most", "cache", "", 4, BELOW, ("most",)),
    Target("best", TABLE, "", 5, BELOW, RELATIONS["best"]),
    Target("best", "search", "", 6, BELOW, ("best",)),
)
"""Of views that come later."""
READ: Final = (Target("accounts", TABLE, BELOW[0]), Target("lines", TABLE, BELOW[1]))
RICH: Final = 4


class Failed(Exception):  # noqa: N818  as the real one's error, it is no violation
    """The query's SQL fails on a row."""


def computed(
    view: str, variant: int, rows: Mapping[str, Rows], only: Collection[str] | None = None
) -> dict[str, Values]:
    """The query's answer over these relations, or what it has of some keys; another variant never fails."""
    if view == "best":
        return {key: row for key, row in rows["most"].items() if _is_wanted(key, only) and row[1] != variant}
    if view != "pieces":
        found = {key: (row[0], row[2]) for key, row in rows["pieces"].items() if _is_wanted(key, only)}
        bound = (RICH if view == "rich" else 0) - variant
        return {key: row for key, row in found.items() if isinstance(row[1], int) and row[1] > bound}
    totals: dict[object, int] = {}
    for line in rows["lines"].values():
        assert isinstance(line[2], int)
        totals[line[0]] = totals.get(line[0], 0) + line[2]
    answer: dict[str, Values] = {}
    for key, (identity, name, *_) in rows["accounts"].items():
        if _is_wanted(key, only):
            if name == "ölm" and identity in totals and not variant:
                raise Failed
            answer[key] = identity, name, totals.get(identity, 0) + variant
    return answer


def _is_wanted(key: str, only: Collection[str] | None) -> bool:
    return only is None or key in only


def key_of(relation: str, row: Values) -> str:
    """The key of the query's row that a row of a relation belongs to."""
    return f'{{"id":{row[0]}}}'


def due(view: str, declared: tuple[int, ...], state: State) -> dict[str, Values] | None:
    """What the query must show of this state of the source; None where it fails."""
    try:
        return _answer(view, declared, {"accounts": state[OIDS[BELOW[0]]], "lines": state[OIDS[BELOW[1]]]})
    except Failed:
        return None


def _answer(view: str, declared: tuple[int, ...], tables: Mapping[str, Rows]) -> dict[str, Values]:
    """With what is below it, each by its own variant."""
    below = {name: _answer(name, declared[1:], tables) for name in RELATIONS[view] if name in RELATIONS}
    return computed(view, declared[0], below or tables)
