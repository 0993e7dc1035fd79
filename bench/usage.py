"""What a process costs: CPU seconds of all its threads and its peak memory, as the kernel counts them (Linux)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mb(pid: int) -> float:
    """The most memory that it ever held, in megabytes (VmHWM)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "the process has ended"
    return int(found[1]) / 1024


def forget_peak(pid: int) -> None:
    """Count the peak from what it holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def children(pid: int) -> list[int]:
    """The processes that it started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    below = [int(child) for child in listed]
    return below + [grandchild for child in below for grandchild in children(child)]


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds at one moment."""

    reader: float
    broker: float

    @staticmethod
    def so_far(reader: int, broker: int) -> Spent:
        """The reader's with its children's, and the broker's."""
        return Spent(sum(map(cpu_seconds, [reader, *children(reader)])), cpu_seconds(broker))

    def since(self, before: Spent) -> Spent:
        """What was spent in between."""
        return Spent(self.reader - before.reader, self.broker - before.broker)


def peak_of_all_mb(pid: int) -> float:
    """The peaks of a process and its children together, an upper bound of what they held at one time."""
    return peak_mb(pid) + sum(map(_peak_of_child_mb, children(pid)))


def _peak_of_child_mb(pid: int) -> float:
    """Of one that may have ended since it was listed."""
    try:
        return peak_mb(pid)
    except (AssertionError, OSError):
        return 0.0
