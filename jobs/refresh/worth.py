"""Whether so much of a table changed that a view over it is computed in full for no more.

In: how many rows changed and what share they are, what kind of view reads them. Out: yes or no. It is a matter of cost
alone; the figures are measured (docs/BENCHMARKS.md, ADR 26).
"""

from __future__ import annotations

from typing import Final

from jobs.refresh.relations import CHANGES_MAX

CHANGES_FEW: Final = 1_000
"""Up to so many changed rows of a table, what share of it they are does not matter."""
ROWS_SHARE_MAX: Final = 0.1
TALLIED_SHARE_MAX: Final = 0.05
"""From this share of a table's rows on, to find what they affect costs as much."""
LARGE_SHARE_MAX: Final = 0.005
"""The same where Spark has to find it, through all rows of the table."""


def are_many(count: int, share: float, view_rows: int) -> bool:
    """Of a view that is refreshed by keys: the rows that changed may reach the same share of its own."""
    reach = max(float(count), share * view_rows)
    return count > CHANGES_FEW and share >= (LARGE_SHARE_MAX if reach > CHANGES_MAX else ROWS_SHARE_MAX)


def are_many_to_tally(count: int, share: float, relations: int) -> bool:
    """Of a view whose results are added to: of one table alone, more than are looked up here never pay."""
    if count > CHANGES_MAX and (relations == 1 or share >= LARGE_SHARE_MAX):
        return True
    return count > CHANGES_FEW and share >= TALLIED_SHARE_MAX
