"""Which rows a Delta table holds, told by numbers: what a query notes of each table that it was computed from.

In: a table's version, its generation, and the turn of our newest commit. Out: three numbers and back. Keeps true: the
same generation and turn are the same rows, also where somebody has tidied the files since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """`version` is where the rows can be read."""

    version: int
    generation: int
    turn: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """As a position keeps them."""
        return self.version, self.generation, self.turn

    @classmethod
    def of(cls, numbers: Sequence[int] | None) -> Held | None:
        """What was kept; None for anything else."""
        return cls(*numbers) if numbers is not None and len(numbers) == 3 else None

    def has_rows_of(self, other: Held | None) -> bool:
        """Whether both are the same rows."""
        return other is not None and (self.generation, self.turn) == (other.generation, other.turn)

    def continues(self, other: Held | None) -> bool:
        """Whether the other is an earlier state, or the same, of the very table."""
        return other is not None and self.generation == other.generation and self.version >= other.version
