"""What is worth doing about a table's files."""

from __future__ import annotations

import pytest

from sinks.delta.layout import DataFile, Limits, Step, decide, layout_of

MB = 1 << 20
LIMITS = Limits()


def side_by_side(count: int, size: int) -> list[DataFile]:
    return [DataFile(size, place * 100, place * 100 + 99) for place in range(count)]


def everywhere(count: int, size: int) -> list[DataFile]:
    return [DataFile(size, place, 10_000 - place) for place in range(count)]


@pytest.mark.parametrize(
    ("files", "overlap"),
    [
        ([], 0.0),
        (side_by_side(20, MB), 1.0),
        (everywhere(20, MB), 20.0),
        ([*side_by_side(2, MB), DataFile(MB, 0, 199)], (2 + 2 + 3) / 3),
        ([DataFile(MB), DataFile(MB)], 0.0),
        ([DataFile(MB, "a", "b"), DataFile(MB, "b", "c")], 2.0),
    ],
)
def test_overlap_is_how_many_files_a_key_may_lie_in(files: list[DataFile], overlap: float):
    assert layout_of(files, LIMITS).overlap == overlap


@pytest.mark.parametrize(
    ("files", "sorted_mb", "step"),
    [
        (side_by_side(40, MB), None, None),
        (side_by_side(41, MB), None, Step.COMPACT),
        (side_by_side(1_000, 64 * MB), None, None),
        (everywhere(12, 4 * MB), None, Step.SORT),
        (everywhere(7, 8 * MB), None, None),
        (everywhere(12, 2 * MB), None, None),
        (everywhere(12, 40 * MB), None, None),
        (everywhere(12, 4 * MB), 40, None),
        (everywhere(12, 4 * MB), 38, Step.SORT),
        (everywhere(50, 2 * MB), 90, Step.COMPACT),
    ],
)
def test_what_pays_follows_from_the_layout_alone(files: list[DataFile], sorted_mb: int | None, step: Step | None):
    layout = layout_of(files, LIMITS)
    assert decide(layout, None if sorted_mb is None else sorted_mb * MB, LIMITS) is step
