"""How a table's files lie, and what is worth doing about it: one decision of numbers alone.

In: each file's bytes and the range of the first key column in it, and what was done last. Out: a Layout, and Steps.
Keeps true: what is decided depends on nothing else, so a table of any size can be tried in a test.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DataFile:
    """`low` and `high` are None where the file has no statistics."""

    bytes: int
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class Layout:
    """`overlap` is how many files a key of the table may lie in, on average: 1 where they lie side by side."""

    files: int
    bytes: int
    small: int
    overlap: float


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on it pays."""

    file_bytes: int = 32 << 20
    """A compacted file; smaller ones are small."""
    small_max: int = 40
    """Each file costs a reader an open and a few round trips."""
    sorted_file_bytes: int = 8 << 20
    sort_bytes_min: int = 32 << 20
    """A smaller table is rewritten in no time, whichever way it lies."""
    sort_bytes_max: int = 128 << 20
    """Sorting rewrites the whole table while apply waits: some seconds up to here."""
    overlap_max: float = 8.0
    growth_min: float = 1.25
    """Keys that come in at one end make a table grow; where it doesn't, changes hit all of it, sorted or not."""


class Step(enum.Enum):
    """What is done."""

    COMPACT = "compact"
    SORT = "sort"


def layout_of(files: Sequence[DataFile], limits: Limits) -> Layout:
    """What the files look like together."""
    small = sum(file.bytes < limits.file_bytes for file in files)
    return Layout(len(files), sum(file.bytes for file in files), small, _overlap(files))


def decide(layout: Layout, sorted_bytes: int | None, limits: Limits) -> Step | None:
    """What pays; `sorted_bytes` is how large the table was when it was sorted last."""
    grown = sorted_bytes is None or layout.bytes >= limits.growth_min * sorted_bytes
    fits = limits.sort_bytes_min <= layout.bytes <= limits.sort_bytes_max
    if fits and grown and layout.overlap >= limits.overlap_max:
        return Step.SORT
    return Step.COMPACT if layout.small > limits.small_max else None


def _overlap(files: Sequence[DataFile]) -> float:
    # Of files without statistics nothing is known, and sorting them would not help.
    ranged = [file for file in files if file.low is not None and file.high is not None]
    if not ranged:
        return 0.0
    lows, highs = sorted(file.low for file in ranged), sorted(file.high for file in ranged)
    touching = (
        len(ranged) - bisect_left(highs, file.low) - (len(ranged) - bisect_right(lows, file.high)) for file in ranged
    )
    return sum(touching) / len(ranged)
