"""A Delta table's versions as any reader sees them come, and how far in its topic each one goes.

In: the table's folder. Out: (when it was seen, end offsets) for each version that says so: ours in the commit's
metadata, the recipe's by the number of its batch, whose offsets Structured Streaming has written down before it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Ends = tuple[int, ...]
EndsOf = Callable[[Mapping[str, Any]], Ends | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """One version."""

    at_s: float
    ends: Ends


@dataclass(slots=True)
class Versions:
    """Follows one table's log from where it is."""

    folder: Path
    ends_of: EndsOf
    next_version: int = 0
    seen: list[Seen] = field(default_factory=list)

    @property
    def ends(self) -> Ends | None:
        """Where the newest version that says so ends."""
        return self.seen[-1].ends if self.seen else None

    def look(self) -> None:
        """Take what has come."""
        while (path := self.folder / "_delta_log" / f"{self.next_version:020}.json").exists():
            at_s = time.monotonic()
            ends = self.ends_of(_actions(path))
            self.next_version += 1
            if ends is not None:
                self.seen.append(Seen(at_s, ends))

    def has_reached(self, ends: Ends) -> bool:
        """Whether a version holds everything before these offsets."""
        return self.ends is not None and all(a >= b for a, b in zip(self.ends, ends, strict=True))


def ours(topic: str) -> EndsOf:
    """By the stamp."""

    def ends_of(actions: Mapping[str, Any]) -> Ends | None:
        stamp = actions.get("commitInfo", {}).get("userMetadata")
        return tuple(json.loads(stamp)["offsets"][topic]) if stamp else None

    return ends_of


def recipes(topic: str, checkpoint: Path) -> EndsOf:
    """By the batch."""

    def ends_of(actions: Mapping[str, Any]) -> Ends | None:
        batch = actions.get("txn")
        if batch is None:
            return None
        offsets = json.loads((checkpoint / "offsets" / str(batch["version"])).read_text().splitlines()[2])[topic]
        return tuple(offsets[str(number)] for number in range(len(offsets)))

    return ends_of


def _actions(path: Path) -> dict[str, Any]:
    """The actions that there is one of in a commit."""
    for _ in range(100):
        try:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            return {name: body for line in lines for name, body in line.items()}
        except ValueError:  # Spark's local store may show a file that is being written
            time.sleep(0.002)
    raise AssertionError(f"{path} stays half written")
