"""How far a log reaches: from where on states can be told, what is not known in between, and which columns held when.

In: the log's newest stamp. Out: a Reach, or the LSN and reason why a state cannot be told. Keeps true: a state that is
not surely the source's own is never given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cdc.lsn import format_lsn, parse_lsn

Gap = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """The table's columns, in Delta's names, from this LSN on."""

    lsn: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """What a log says of itself.

    States can be told at `begin_lsn` and later, but for those strictly between the two ends of a gap: there changes may
    have passed that nobody saw one by one. `begin_us` is the source's time of the beginning.
    """

    key: tuple[str, ...]
    shapes: tuple[Shape, ...]
    begin_lsn: int
    begin_us: int
    gaps: tuple[Gap, ...] = ()

    def shape_at(self, lsn: int) -> Shape:
        """The columns that the table had there."""
        return next((shape for shape in reversed(self.shapes) if shape.lsn < lsn), self.shapes[0])

    def gap_at(self, lsn: int) -> Gap | None:
        """The gap in which a position lies."""
        return next((gap for gap in self.gaps if gap[0] < lsn < gap[1]), None)

    def with_gap(self, low: int, high: int) -> Reach:
        """One more gap; one that touches it becomes part of it."""
        touching = [gap for gap in self.gaps if gap[0] <= high and low <= gap[1]]
        low, high = min([low, *(gap[0] for gap in touching)]), max([high, *(gap[1] for gap in touching)])
        return replace(self, gaps=(*(gap for gap in self.gaps if gap not in touching), (low, high)))

    def with_shape(self, key: tuple[str, ...], shape: Shape) -> Reach:
        """The same log with the table's new columns, if they are new."""
        if self.shapes[-1].columns == shape.columns:
            return replace(self, key=key)
        return replace(self, key=key, shapes=(*(each for each in self.shapes if each.lsn < shape.lsn), shape))

    def beginning(self, lsn: int, us: int) -> Reach:
        """The same log once all that ended before this position was folded away."""
        shapes = [shape for shape in self.shapes if shape.lsn > lsn]
        gaps = tuple(gap for gap in self.gaps if gap[1] > lsn)
        return replace(self, begin_lsn=lsn, begin_us=us, shapes=(self.shape_at(lsn), *shapes), gaps=gaps)

    def fields(self) -> dict[str, Any]:
        """As the stamp holds it."""
        return {
            "key": list(self.key),
            "shapes": [[format_lsn(shape.lsn), list(shape.columns)] for shape in self.shapes],
            "begin": format_lsn(self.begin_lsn),
            "begin_us": self.begin_us,
            "gaps": [[format_lsn(low), format_lsn(high)] for low, high in self.gaps],
        }


def parse_reach(fields: Mapping[str, Any]) -> Reach:
    """The inverse of `fields`."""
    return Reach(
        tuple(fields["key"]),
        tuple(Shape(parse_lsn(lsn), tuple(columns)) for lsn, columns in fields["shapes"]),
        parse_lsn(fields["begin"]),
        int(fields["begin_us"]),
        tuple((parse_lsn(low), parse_lsn(high)) for low, high in fields["gaps"]),
    )
