"""How far a log reaches: from where on states can be told, what is not known in between, and which columns held when.

In: the log's newest stamp. Out: a Reach, or the LSN and reason why a state cannot be told. Keeps true: a state that is
not surely the source's own is never given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc.lsn import format_lsn, parse_lsn

Gap = tuple[int, int]

_AGAIN: Final = "%@"
"""No column of Delta's is called so: cdc.names escapes the percent sign of a name."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The table's key and columns, as the log calls them, from this LSN on.

    Where a column comes again with another type, the log has one more for it. Where rows can no longer be compared with
    older ones, since types or the key changed, the log has all rows anew at `since_lsn`, and older ones don't count.
    """

    lsn: int
    key: tuple[str, ...]
    columns: tuple[str, ...]
    since_lsn: int = 0

    @property
    def stored(self) -> dict[str, str]:
        """The table's names of its columns, and the log's."""
        return {shown(name): name for name in self.columns}


@dataclass(frozen=True, slots=True)
class Reach:
    """What a log says of itself.

    States can be told at `begin_lsn` and later, but for those strictly between the two ends of a gap: there changes may
    have passed that nobody saw one by one. `begin_us` is the source's time of the beginning.
    """

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
        """One more gap, if any position lies in it; one that touches it becomes part of it."""
        if high - low < 2:
            return self
        touching = [gap for gap in self.gaps if gap[0] <= high and low <= gap[1]]
        low, high = min([low, *(gap[0] for gap in touching)]), max([high, *(gap[1] for gap in touching)])
        return replace(self, gaps=(*(gap for gap in self.gaps if gap not in touching), (low, high)))

    def with_shape(self, shape: Shape) -> Reach:
        """The same log with the table's new shape, if it is new."""
        last = self.shapes[-1]
        if (last.key, last.columns) == (shape.key, shape.columns):
            return self
        return replace(self, shapes=(*(each for each in self.shapes if each.lsn < shape.lsn), shape))

    def beginning(self, lsn: int, us: int) -> Reach:
        """The same log once all that ended before this position was folded away."""
        shapes = [shape for shape in self.shapes if shape.lsn > lsn]
        gaps = tuple(gap for gap in self.gaps if gap[1] > lsn)
        return replace(self, begin_lsn=lsn, begin_us=us, shapes=(self.shape_at(lsn), *shapes), gaps=gaps)

    def fields(self) -> dict[str, Any]:
        """As the stamp holds it."""
        return {
            "shapes": [
                {
                    "lsn": format_lsn(shape.lsn),
                    "key": list(shape.key),
                    "columns": list(shape.columns),
                    "since": format_lsn(shape.since_lsn),
                }
                for shape in self.shapes
            ],
            "begin": format_lsn(self.begin_lsn),
            "begin_us": self.begin_us,
            "gaps": [[format_lsn(low), format_lsn(high)] for low, high in self.gaps],
        }


def parse_reach(fields: Mapping[str, Any]) -> Reach:
    """The inverse of `fields`."""
    return Reach(
        tuple(
            Shape(parse_lsn(each["lsn"]), tuple(each["key"]), tuple(each["columns"]), parse_lsn(each["since"]))
            for each in fields["shapes"]
        ),
        parse_lsn(fields["begin"]),
        int(fields["begin_us"]),
        tuple((parse_lsn(low), parse_lsn(high)) for low, high in fields["gaps"]),
    )


def shown(name: str) -> str:
    """The table's name of a column of the log."""
    return name.partition(_AGAIN)[0]


def stored_as(column: str, kind: str, log: Mapping[str, str], latest: Sequence[str]) -> str:
    """The log's column for a column of this type: one that it has, or one more. `log` has the types of all."""
    known = [name for name in log if shown(name) == column]
    fitting = [name for name in known if log[name] == kind]
    if fitting:
        return next((name for name in fitting if name in latest), fitting[-1])
    return column if column not in known else f"{column}{_AGAIN}{len(known) + 1}"
