"""The queries of the simulated pipeline: one over two tables, and one over that; both with a sink that follows.

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
RELATIONS: Final = {"pieces": ("accounts", "lines"), "rich": ("pieces",)}
QUERIES: Final = (
    Target("pieces", TABLE, "", 1, BELOW, RELATIONS["pieces"]),
    Target("pieces", "cache", "", 2, BELOW, ("pieces",)),
    Target("rich", TABLE, "", 3, BELOW, RELATIONS["rich"]),
    Target("rich", "search", "", 4, BELOW, ("rich",)),
)
READ: Final = (Target("accounts", TABLE, BELOW[0]), Target("lines", TABLE, BELOW[1]))
RICH: Final = 4


class Failed(Exception):  # noqa: N818  as the real one's error, it is no violation
    """The query's SQL fails on a row."""


def computed(
    view: str, variant: int, rows: Mapping[str, Rows], only: Collection[str] | None = None
) -> dict[str, Values]:
    """The query's answer over these relations, or what it has of some keys; another variant never fails."""
    if view == "rich":
        found = {key: (row[0], row[2]) for key, row in rows["pieces"].items() if only is None or key in only}
        return {key: row for key, row in found.items() if isinstance(row[1], int) and row[1] > RICH - variant}
    totals: dict[object, int] = {}
    for line in rows["lines"].values():
        assert isinstance(line[2], int)
        totals[line[0]] = totals.get(line[0], 0) + line[2]
    answer: dict[str, Values] = {}
    for key, (identity, name, *_) in rows["accounts"].items():
        if only is None or key in only:
            if name == "ölm" and identity in totals and not variant:
                raise Failed
            answer[key] = identity, name, totals.get(identity, 0) + variant
    return answer


def key_of(relation: str, row: Values) -> str:
    """The key of the query's row that a row of a relation belongs to."""
    return f'{{"id":{row[0]}}}'


def due(view: str, declared: tuple[int, ...], state: State) -> dict[str, Values] | None:
    """What the query must show of this state of the source; None where it fails."""
    tables = {"accounts": state[OIDS[BELOW[0]]], "lines": state[OIDS[BELOW[1]]]}
    try:
        pieces = computed("pieces", declared[-1], tables)
        return computed("rich", declared[0], {"pieces": pieces}) if view == "rich" else pieces
    except Failed:
        return None
