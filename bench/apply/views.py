"""A join and an aggregate over a large table of orders, refreshed by us and computed in full by the peer, in turns.

In: a Field whose pipeline has these views. Out: Figures at one share of changed rows, and how it goes at others. A
refresh's seconds are those that the ledger has of it; the peer overwrites a Delta table with the same SELECT over the
same mirrors, warm, on its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.apply.field import Field
from bench.apply.result import Figures, rounded
from bench.apply.sides import Ours, Recompute
from bench.apply.tables import changed
from jobs.ledger import Ledger

VIEWS: Mapping[str, str] = {
    "order_customers": "SELECT o.id, o.amount, o.status, o.mark, c.name, c.region "
    "FROM orders o JOIN customers c ON c.id = o.customer",
    "by_status": "SELECT status, count(*) AS orders, sum(amount) AS amount, max(mark) AS mark "
    "FROM orders GROUP BY status",
    "by_customer": "SELECT customer, count(*) AS orders, sum(amount) AS amount, sum(quantity) AS pieces "
    "FROM orders GROUP BY customer",
}
SHARE = 0.001
_CHECKS = {
    "order_customers": "count(*), sum(id), sum(amount), sum(mark), sum(region)",
    "by_status": "count(*), sum(orders), sum(amount), sum(mark)",
    "by_customer": "count(*), sum(orders), sum(amount), sum(pieces)",
}


def refreshes(at: Field, shares: Sequence[float], repeats: int, *, target: str) -> dict[str, Figures]:
    """Figures per view; `more` has the ways and seconds at each share."""
    found = {view: Figures("s", target, more={"rows": at.rows, "shares": {}}) for view in VIEWS}
    ours = at.side(Ours.name)
    assert isinstance(ours, Ours)
    peer = Recompute(at.pipeline, at.tables)
    try:
        for view, select in VIEWS.items():
            peer.recompute(view, select)
        for share in shares:
            turns = [_turn(at, ours, peer, share, turn) for turn in range(repeats + (share == shares[0]))]
            # The first turn of all warms both up.
            for view, figures in found.items():
                _take(figures, [turn[view] for turn in turns[-repeats:]], share)
        _require_equal(at, peer)
        for figures in found.values():
            figures.memory_mb, figures.peer_memory_mb = ours.peak_mb, peer.peak_mb
    finally:
        peer.stop()
    return found


def _turn(at: Field, ours: Ours, peer: Recompute, share: float, turn: int) -> dict[str, tuple[float, float, str]]:
    """Each view's seconds here and there, and the way that we took."""
    at.turns += 1
    at.publish(*changed(at.tables[0], max(10, int(at.rows * share)), at.rows, at.turns))
    ours.turn(at.ends())
    state = Ledger(at.pipeline.settings.delta_root).read()
    assert state is not None
    found = {}
    for view, select in VIEWS.items():
        assert state.rows[view].lsn == state.lsn, f"{view} stays behind"
        last: dict[str, Any] = json.loads(state.rows[view].refreshed)
        found[view] = (float(last["seconds"]), peer.recompute(view, select), str(last["how"]))
    return found


def _take(figures: Figures, turns: Sequence[tuple[float, float, str]], share: float) -> None:
    ours, peer = [turn[0] for turn in turns], [turn[1] for turn in turns]
    if share == SHARE:
        figures.ours, figures.peer = ours, peer
    figures.more["shares"][str(share)] = {
        "ours": rounded(median(ours)),
        "peer": rounded(median(peer)),
        "ratio": round(median(ours) / median(peer), 3),
        "how": sorted({turn[2] for turn in turns}),
    }


def _require_equal(at: Field, peer: Recompute) -> None:
    """Ours after all refreshes is the peer's last computation."""
    for view, words in _CHECKS.items():
        here, there = (_sums(Path(folder) / view, words) for folder in (at.pipeline.settings.delta_root, peer.folder))
        assert here == there, f"{view} holds {here}, computed in full {there}"


def _sums(folder: Path, words: str) -> list[str]:
    reader = QueryBuilder().register("rows", DeltaTable(str(folder))).execute(f"SELECT {words} FROM rows")  # noqa: S608
    return [str(value) for value in pa.table(reader.read_all()).to_pylist()[0].values()]
