"""A work's figures: ours beside the peer's and the limit, as medians of turns.

In: each turn's seconds or rate. Out: one JSON object a work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(slots=True)
class Figures:
    """One work; `more_is_better` for rates."""

    unit: str
    target: str
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    limit: list[float] = field(default_factory=list)
    memory_mb: float = 0.0
    peer_memory_mb: float = 0.0
    more: dict[str, Any] = field(default_factory=dict)

    def of(self, side: str) -> list[float]:
        """The side's turns."""
        return self.ours if side == "ours" else self.peer

    def body(self) -> dict[str, Any]:
        """For the JSON."""
        found: dict[str, Any] = {"unit": self.unit, "target": self.target}
        for name, turns in (("ours", self.ours), ("peer", self.peer), ("limit", self.limit)):
            found[name] = rounded(median(turns)) if turns else None
        ours, peer = found["ours"], found["peer"]
        found["ratio"] = round(ours / peer, 3) if ours and peer else None
        found["memory_mb"], found["peer_memory_mb"] = round(self.memory_mb), round(self.peer_memory_mb)
        runs = {"ours": self.ours, "peer": self.peer, "limit": self.limit}
        found["turns"] = {name: [rounded(each) for each in values] for name, values in runs.items()}
        return found | self.more


def rounded(value: float) -> float:
    """Three decimals of seconds, whole events."""
    return round(value, 3) if value < 1000 else float(round(value))
