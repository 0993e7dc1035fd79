"""bench/results/capture.json as a table for docs/BENCHMARKS.md and a plot beside it.

In: the results. Out: the table between the page's two markers, and docs/capture.png.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.capture import RESULTS

PAGE = Path("docs/BENCHMARKS.md")
PICTURE = Path("docs/capture.png")
_BEGIN, _END = "<!-- capture: begin -->\n", "<!-- capture: end -->\n"
_WORKS = {
    "snapshot": "snapshot, 1M accounts",
    "snapshot_wide": "snapshot, 1M wide rows",
    "catchup_1row": "catch-up, 1-row transactions",
    "catchup_100row": "catch-up, 100-row transactions",
}
_SIDES = {"afterimage": "Afterimage", "debezium": "Debezium", "limit": "limit (COPY, pg_recvlogical)"}


def table(results: dict[str, Any]) -> str:
    """In Markdown."""
    lines = [
        "| work | Afterimage /s | Debezium /s | ratio | of the limit | CPU s: ours | theirs | peak MB: ours | theirs |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for work, words in _WORKS.items():
        if work in results:
            lines.append(_line(words, results[work]))
    if "latency" in results:
        found = results["latency"]
        lines += [
            "",
            f"Commit to broker at 1,000 changes/s: p50 {found.get('p50_ms')} ms, p99 {found.get('p99_ms')} ms; ",
        ]
        lines[-1] += f"Debezium p50 {found.get('debezium_p50_ms')} ms, p99 {found.get('debezium_p99_ms')} ms."
    return "\n".join(lines) + "\n"


def _line(words: str, body: dict[str, Any]) -> str:
    ours, peer = body.get("afterimage", {}), body.get("debezium", {})
    cells = [
        words,
        _rate(ours),
        _rate(peer),
        str(body.get("ratio_to_debezium", "")),
        str(body.get("ratio_to_limit", "")),
    ]
    cells += [_cpu(ours), _cpu(peer), _memory(ours), _memory(peer)]
    return f"| {' | '.join(cells)} |"


def _rate(side: dict[str, Any]) -> str:
    return f"{side['per_second']:,.0f}" if side else ""


def _cpu(side: dict[str, Any]) -> str:
    return f"{side['reader_cpu_s']:.1f} + {side['broker_cpu_s']:.1f}" if side else ""


def _memory(side: dict[str, Any]) -> str:
    return f"{side['peak_rss_mb']:.0f}" if side else ""


def plot(results: dict[str, Any], path: Path) -> None:
    """Rates side by side, one group for each work."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    works = [work for work in _WORKS if work in results]
    figure, axes = pyplot.subplots(figsize=(9, 4))
    for number, (side, words) in enumerate(_SIDES.items()):
        rates = [results[work].get(side, {}).get("per_second", 0.0) / 1000 for work in works]
        bars = axes.bar([at + (number - 1) * 0.27 for at in range(len(works))], rates, 0.25, label=words)
        axes.bar_label(bars, labels=[f"{rate:.0f}k" if rate else "" for rate in rates], fontsize=8)
    axes.set_xticks(range(len(works)), [_WORKS[work].replace(", ", ",\n") for work in works])
    axes.set_ylabel("thousand rows or changes a second")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with this text between its two markers."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + text + end + after


def main() -> None:
    """Write both."""
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(between(PAGE.read_text(), _BEGIN, _END, table(results)))
    plot(results, PICTURE)


if __name__ == "__main__":
    main()
