"""`make bench-apply`: apply beside the usual recipe of Structured Streaming and MERGE, on the same topics, in turns.

In: how often, how large, which works. Out: bench/results/apply.json, one object a work.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.apply import fresh_views, views, works
from bench.apply.field import Field, field
from bench.apply.freshness import freshness
from bench.apply.result import Figures
from bench.apply.searchable import search_cache
from bench.apply.sides import Ours
from bench.apply.sustained import sustained
from bench.servers import Bench, running

RESULTS = Path(__file__).parents[1] / "results" / "apply.json"
ROWS = 1_000_000
PEERS_MILLIONS = 10
"""Beyond that the recipe takes no part in `growth`: what it costs to fill its table says nothing of the changes."""
BATCHES: dict[str, Callable[[Field, int], Figures]] = {
    "changes_1k": lambda at, repeats: works.changes(at, 1_000, repeats, target="ratio <= 0.5"),
    "changes_10k": lambda at, repeats: works.changes(at, 10_000, repeats, target="ratio <= 0.5"),
    "five_mirrors": lambda at, repeats: works.changes(at, 1_000, repeats, tables=5, target="ratio <= 0.4"),
}

_VIEW = "view_"
_say = Console(stderr=True, highlight=False).print


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says."""

    works: list[str]
    sides: list[str]
    repeats: int
    scale: float
    results: Path
    sustained_s: float
    sizes: tuple[int, ...]
    view_millions: int
    shares: tuple[float, ...]
    marks: bool

    def rows(self, full: int = ROWS) -> int:
        """At this scale."""
        return max(1_000, int(full * self.scale))

    def save(self, work: str, figures: Figures) -> None:
        """Into the results, and to whoever looks on."""
        self.results.parent.mkdir(parents=True, exist_ok=True)
        document = json.loads(self.results.read_text()) if self.results.exists() else {}
        document[work] = body = figures.body()
        body["deletion_vectors"] = self.marks
        if self.scale != 1:
            body["scale"] = self.scale
        self.results.write_text(json.dumps(document, indent=2) + "\n")
        told = {name: body[name] for name in ("ours", "peer", "ratio", "limit", "memory_mb", "peer_memory_mb")}
        _say(f"{work:14} {figures.unit:9} {told} {figures.more}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.apply", description=__doc__)
    parser.add_argument("works", nargs="*", help="which works (`views`: all of view_*); else all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="below 1 for a quick look")
    parser.add_argument("--sides", default="ours,recipe")
    parser.add_argument("--folder", type=Path, default=Path("data/bench-apply"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--sustained-s", type=float, default=300.0, help="how long the highest rate is held")
    parser.add_argument("--sizes", default="1,10,50", help="for growth: millions of rows")
    parser.add_argument("--view-millions", type=int, default=10, help="for views: millions of rows")
    parser.add_argument(
        "--shares",
        default="0.1,0.001,0.01,0.025",
        help="for views: parts of the rows that change; first what is computed in full, as often by both by then",
    )
    parser.add_argument(
        "--whole-files", action="store_true", help="without delta.deletion_vectors: our small batches write files anew"
    )
    given = parser.parse_args()
    wanted = Wanted(
        given.works or list(GROUPS),
        given.sides.split(","),
        given.repeats,
        given.scale,
        given.results,
        given.sustained_s,
        tuple(int(size) for size in given.sizes.split(",")),
        given.view_millions,
        tuple(float(share) for share in given.shares.split(",")),
        not given.whole_files,
    )
    asked = {*wanted.works, *(name for name in GROUPS if "views" in wanted.works and name.startswith(_VIEW))}
    with running(given.folder.absolute()) as bench:
        for names, measure in GROUPS.items():
            if chosen := [name for name in names.split() if name in asked or names in asked]:
                measure(bench, wanted, chosen)


def _rebuild(bench: Bench, wanted: Wanted, _: list[str]) -> None:
    with field(bench, 1, wanted.rows(ROWS // 2), wanted.sides, marks=wanted.marks) as at:
        wanted.save("rebuild_1m", works.rebuild(at, wanted.repeats, target="ratio >= 1.5"))


def _batches(bench: Bench, wanted: Wanted, chosen: list[str]) -> None:
    with field(bench, 5 if "five_mirrors" in chosen else 1, wanted.rows(), wanted.sides, marks=wanted.marks) as at:
        for name in chosen:
            wanted.save(name, BATCHES[name](at, wanted.repeats))


def _growth(bench: Bench, wanted: Wanted, _: list[str]) -> None:
    points: dict[str, dict[str, Any]] = {}
    for millions in wanted.sizes:
        sides = [side for side in wanted.sides if side == Ours.name or millions <= PEERS_MILLIONS]
        with field(bench, 1, wanted.rows(millions * ROWS), sides, marks=wanted.marks) as at:
            figures = works.recent_changes(at, 10_000, wanted.repeats, target="ours: 50M costs <= 3x 1M")
        points[f"{millions}M"] = {name: figures.body()[name] for name in ("ours", "peer", "memory_mb", "turns")}
        ours = [point["ours"] for point in points.values()]
        figures.more = {"points": points, "growth": round(ours[-1] / ours[0], 3) if all(ours) else None}
        wanted.save("growth", figures)


def _freshness(bench: Bench, wanted: Wanted, _: list[str]) -> None:
    with field(bench, 1, wanted.rows(), wanted.sides, marks=wanted.marks) as at:
        target = "ours p50 <= 1.0 s, p99 <= 2.5 s"
        wanted.save("freshness", freshness(at, 10 + 20 * wanted.scale, wanted.repeats, target=target))


def _fresh_views(bench: Bench, wanted: Wanted, _: list[str]) -> None:
    with field(bench, 5, wanted.rows(), wanted.sides, fresh_views.VIEWS, marks=wanted.marks) as at:
        seconds = 10 + 20 * wanted.scale
        wanted.save("fresh_views", fresh_views.fresh_views(at, seconds, wanted.repeats, target="ours p50 <= 3 s"))


def _search_cache(bench: Bench, wanted: Wanted, _: list[str]) -> None:
    seconds = 10 + 20 * wanted.scale
    target = "p50 <= 0.5 s"
    wanted.save("search_cache", search_cache(bench, wanted.rows(100_000), seconds, wanted.repeats, target=target))


def _sustained(bench: Bench, wanted: Wanted, _: list[str]) -> None:
    with field(bench, 1, wanted.rows(), wanted.sides, marks=wanted.marks) as at:
        wanted.save("sustained", sustained(at, wanted.sustained_s, target="ratio >= 2"))


def _views(bench: Bench, wanted: Wanted, chosen: list[str]) -> None:
    with field(bench, 1, wanted.rows(wanted.view_millions * ROWS), [], views.VIEWS, marks=wanted.marks) as at:
        target = "ratio <= 0.2 at 0.1% changed, <= 1.1 at any share"
        names = [name.removeprefix(_VIEW) for name in chosen]
        for view, figures in views.refreshes(at, names, wanted.shares, wanted.repeats, target=target):
            wanted.save(f"{_VIEW}{view}", figures)


GROUPS: dict[str, Callable[[Bench, Wanted, list[str]], None]] = {
    "rebuild_1m": _rebuild,
    " ".join(BATCHES): _batches,
    "growth": _growth,
    "freshness": _freshness,
    "fresh_views": _fresh_views,
    "search_cache": _search_cache,
    "sustained": _sustained,
    " ".join(f"{_VIEW}{name}" for name in views.VIEWS): _views,
}

if __name__ == "__main__":
    main()
