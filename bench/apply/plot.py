"""bench/results/apply.json as a table for docs/BENCHMARKS.md and a plot beside it.

In: the results. Out: the table between the page's two markers, and docs/apply.png.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from bench.apply.__main__ import RESULTS
from bench.plot import PAGE, between

PICTURE: Final = Path("docs/apply.png")
_BEGIN: Final = "<!-- apply: begin -->\n"
_END: Final = "<!-- apply: end -->\n"
_WORKS: Final = {
    "rebuild_1m": "rebuild, 1M events",
    "changes_1k": "1k changes into 1M rows",
    "changes_10k": "10k changes into 1M rows",
    "five_mirrors": "1k changes into each of five mirrors of 1M rows",
    "growth": "10k recent keys in 50M rows (1M: see below)",
    "freshness": "commit to visible in Delta at 1,000 changes/s, p50",
    "fresh_views": "commit to visible in five mirrors and three views, p50",
    "search_cache": "commit to searchable and cached, p50",
    "sustained": "changes/s with a flat lag",
    "view_order_customers": "join of 10M rows, 0.1% changed (peer: in full)",
    "view_by_customer": "50,000 groups over 10M rows, 0.1% changed (peer: in full)",
    "view_by_status": "two groups over 10M rows, 0.1% changed (peer: in full)",
}


def table(results: dict[str, Any]) -> str:
    """In Markdown."""
    lines = ["| work | ours | the recipe | ratio | limit | must reach | peak MB: ours | the recipe's |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    lines += [_line(words, results[work]) for work, words in _WORKS.items() if work in results]
    return "\n".join(lines) + "\n"


def _line(words: str, body: dict[str, Any]) -> str:
    figures = [_figure(body[name], body["unit"]) for name in ("ours", "peer")]
    memory = [str(body[name] or "") for name in ("memory_mb", "peer_memory_mb")]
    cells = [words, *figures, str(body["ratio"] or ""), _figure(body["limit"], body["unit"]), body["target"], *memory]
    return f"| {' | '.join(cells)} |"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.2f} s" if unit == "s" else f"{value:,.0f}/s"


def plot(results: dict[str, Any], path: Path) -> None:
    """Ours in parts of the recipe's, which is 1."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    works = [work for work in reversed(_WORKS) if results.get(work, {}).get("ratio")]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.5 * len(works)))
    bars = axes.barh([_WORKS[work] for work in works], [results[work]["ratio"] for work in works], 0.6)
    axes.bar_label(bars, labels=[_both(results[work]) for work in works], fontsize=8, padding=3)
    axes.axvline(1.0, color="grey", linewidth=1)
    axes.set_xlabel("ours in parts of the recipe's (seconds: less is better; a rate: more)")
    axes.margins(x=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _both(body: dict[str, Any]) -> str:
    return f"{_figure(body['ours'], body['unit'])}, not {_figure(body['peer'], body['unit'])}"


def main() -> None:
    """Write both."""
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(between(PAGE.read_text(), _BEGIN, _END, table(results)))
    plot(results, PICTURE)


if __name__ == "__main__":
    main()
