"""One run's figures, and the medians of several.

A rate counts from the first record that was seen on the broker, so that no start of a JVM or an interpreter is in it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Run:
    """One side doing one work once."""

    side: str
    per_second: float
    reader_cpu_s: float
    broker_cpu_s: float
    peak_rss_mb: float

    def rounded(self) -> dict[str, float | str]:
        """For the JSON."""
        return {key: round(value, 2) if isinstance(value, float) else value for key, value in asdict(self).items()}


def medians(runs: list[Run], side: str) -> Run:
    """The middle of one side's runs, figure by figure; the worst of its memory."""
    own = [run for run in runs if run.side == side]
    return Run(
        side,
        median(run.per_second for run in own),
        median(run.reader_cpu_s for run in own),
        median(run.broker_cpu_s for run in own),
        max(run.peak_rss_mb for run in own),
    )
