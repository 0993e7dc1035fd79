"""A join and two aggregates over a large table of orders, refreshed by us and computed in full by the peer, in turns.

In: a Field without sides. Out: Figures at one share of changed rows, and how it goes at others. Either side has one
view at a time. A refresh's seconds are those that the ledger has of it; the peer overwrites a Delta table with the same
SELECT over the same mirrors, warm. Their files are in memory for both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from bench.apply.field import Field, caught_up
from bench.apply.result import Figures, rounded
from bench.apply.sides import Ours, Recompute, Side
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
_WAIT_S = 1800.0
_LOOK_S = 0.2
_WARM_UPS = 6
_WARM_UPS_EACH = 4
_CHECKS = {
    "order_customers": "count(*), sum(id), sum(amount), sum(mark), sum(region)",
    "by_status": "count(*), sum(orders), sum(amount), sum(mark)",
    "by_customer": "count(*), sum(orders), sum(amount), sum(pieces)",
}


def refreshes(
    at: Field, views: Sequence[str], shares: Sequence[float], repeats: int, *, target: str
) -> Iterator[tuple[str, Figures]]:
    """Figures of one view after the other; `more` has the ways and seconds at each share."""
    peer = Recompute(at.pipeline, at.tables)
    try:
        for view in views:
            yield view, _view(at, peer, view, shares, repeats, target)
    finally:
        peer.stop()


def _view(at: Field, peer: Recompute, view: str, shares: Sequence[float], repeats: int, target: str) -> Figures:
    figures = Figures("s", target, more={"rows": at.rows, "shares": {}})
    for file in at.pipeline.settings.views.glob("*.sql"):
        file.unlink()
    at.pipeline.settings.views.joinpath(f"{view}.sql").write_text(VIEWS[view])
    with caught_up(Ours, at) as ours:
        _await_shown(at, ours, view)
        peer.recompute(view, VIEWS[view])
        for share in shares:
            # The first turns of all warm both up; and so do a few where another share may be taken another way.
            warm = _WARM_UPS if share == shares[0] else _WARM_UPS_EACH
            turns = [_turn(at, ours, peer, share, view) for _ in range(repeats + warm)]
            _take(figures, turns[-repeats:], share)
        _require_equal(at, peer, view)
        figures.memory_mb, figures.peer_memory_mb = ours.peak_mb, peer.peak_mb
    return figures


def _await_shown(at: Field, ours: Side, view: str) -> None:
    """A new view is loaded beside the mirrors, which stand where the topics end long before."""
    ledger, deadline = Ledger(at.pipeline.settings.delta_root), time.monotonic() + _WAIT_S
    ours.go()
    while (state := ledger.read()) is None or view not in state.rows:
        assert time.monotonic() < deadline, f"{view} is not loaded"
        time.sleep(_LOOK_S)
    ours.hold()


def _turn(at: Field, ours: Side, peer: Recompute, share: float, view: str) -> tuple[float, float, str]:
    """Its seconds here and there, and the way that we took."""
    at.turns += 1
    at.publish(*changed(at.tables[0], max(10, int(at.rows * share)), at.rows, at.turns))
    _bring_into_memory(at)
    ours.turn(at.ends())
    state = Ledger(at.pipeline.settings.delta_root).read()
    assert state is not None
    assert state.rows[view].lsn == state.lsn, f"{view} stays behind"
    last: dict[str, Any] = json.loads(state.rows[view].refreshed)
    return float(last["seconds"]), peer.recompute(view, VIEWS[view]), str(last["how"])


def _bring_into_memory(at: Field) -> None:
    """The mirrors' files: whoever reads first, which is always us, would wait for the disk, and the peer would not."""
    folder = Path(at.pipeline.settings.delta_root)
    for path in (file for mirror in folder.glob("public.*") for file in mirror.glob("*.parquet")):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


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


def _require_equal(at: Field, peer: Recompute, view: str) -> None:
    """Ours after all refreshes is the peer's last computation."""
    folders = (at.pipeline.settings.delta_root, peer.folder)
    here, there = (_sums(Path(folder) / view, _CHECKS[view]) for folder in folders)
    assert here == there, f"{view} holds {here}, computed in full {there}"


def _sums(folder: Path, words: str) -> list[str]:
    reader = QueryBuilder().register("rows", DeltaTable(str(folder))).execute(f"SELECT {words} FROM rows")  # noqa: S608
    return [str(value) for value in pa.table(reader.read_all()).to_pylist()[0].values()]
