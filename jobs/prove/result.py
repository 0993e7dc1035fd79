"""What a proof found: per view and sink, how many keys differ and how, and some of them by name.

In: counts and keys. Out: frozen values and their JSON. Keys are shown to whoever asked, values if
they asked for those too; neither ever goes to a log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from cdc.lsn import format_lsn
from sinks.protocol import Unfit

EXAMPLES_MAX: Final = 20
"""Keys of one view in one sink that are named."""


class Difference(enum.Enum):
    """How a key differs."""

    DUPLICATE = "duplicate"
    DIFFERENT = "different"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True)
class Example:
    """A differing key: its columns as Postgres prints them. Where values were asked for, those that differ.

    `source` and `sink` have the columns in which the two rows differ; None: that side has no such row.
    """

    difference: Difference
    key: Mapping[str, str | None]
    source: Mapping[str, str | None] | None = None
    sink: Mapping[str, str | None] | None = None

    def to_json(self, *, with_values: bool) -> dict[str, Any]:
        """For `prove --json`."""
        found: dict[str, Any] = {"difference": self.difference.value, "key": dict(self.key)}
        if not with_values:
            return found
        sides = {"source": self.source, "sink": self.sink}
        return found | {side: None if row is None else dict(row) for side, row in sides.items()}


@dataclass(frozen=True, slots=True)
class Mended:
    """What a repair did to one sink: keys written, deleted, and left as they are."""

    written: int = 0
    deleted: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class ViewProof:
    """A view in one sink against the source, both at `lsn`; `rows` are the source's.

    Read in `chunks`, each was compared at an LSN of its own, the first at `first_lsn`, the last at `lsn`.

    `missing` is no failure where `may_expire`: the sink drops entries by a TTL. `problem` says why nothing was
    compared, or why an equal content would prove nothing. `unfit` rows are lacking, as the sink itself says.
    `with_values`: the examples have them.
    """

    view: str
    sink: str
    lsn: int
    seconds: float
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    duplicate: int = 0
    examples: tuple[Example, ...] = ()
    may_expire: bool = False
    problem: str | None = None
    unfit: tuple[Unfit, ...] = ()
    with_values: bool = False
    first_lsn: int | None = None
    chunks: int = 1
    mended: Mended | None = None
    """What was done after these differences were found, or before this proof of what was mended."""

    @property
    def differences(self) -> int:
        """How many keys differ, those included that a TTL may have taken away."""
        return self.missing + self.extra + self.different + self.duplicate

    @property
    def holds(self) -> bool:
        """Whether the sink was shown to equal the source."""
        missing = 0 if self.may_expire and not self.unfit else self.missing
        return self.problem is None and not (missing or self.extra or self.different or self.duplicate)

    def to_json(self) -> dict[str, Any]:
        """For `prove --json`."""
        examples = [each.to_json(with_values=self.with_values) for each in self.examples]
        return {
            "view": self.view,
            "sink": self.sink,
            "lsn": format_lsn(self.lsn),
            "first_lsn": format_lsn(self.lsn if self.first_lsn is None else self.first_lsn),
            "chunks": self.chunks,
            "holds": self.holds,
            "rows": self.rows,
            "missing": self.missing,
            "extra": self.extra,
            "different": self.different,
            "duplicate": self.duplicate,
            "examples": examples,
            "seconds": round(self.seconds, 3),
            "problem": self.problem,
            "dead_letters": [{"at": row.at, "columns": list(row.columns)} for row in self.unfit],
            "mended": None if self.mended is None else asdict(self.mended),
        }


def joined(parts: Sequence[ViewProof], keys_max: int = EXAMPLES_MAX) -> ViewProof:
    """The proof of a view in one sink, from those of its chunks in the order in which they were read."""
    problem = next((part.problem for part in parts if part.problem is not None), None)
    mended = [part.mended for part in parts if part.mended is not None]
    return replace(
        parts[-1],
        first_lsn=parts[0].lsn,
        chunks=len(parts),
        seconds=sum(part.seconds for part in parts),
        rows=sum(part.rows for part in parts),
        missing=sum(part.missing for part in parts),
        extra=sum(part.extra for part in parts),
        different=sum(part.different for part in parts),
        duplicate=sum(part.duplicate for part in parts),
        examples=tuple(example for part in parts for example in part.examples)[:keys_max],
        problem=problem,
        mended=total(mended) if mended else None,
    )


def total(mended: Sequence[Mended]) -> Mended:
    """All of them together."""
    return Mended(
        sum(each.written for each in mended), sum(each.deleted for each in mended), sum(each.left for each in mended)
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a proof is: what is done now, of which view and sink, and how far (`total` is not always known)."""

    doing: str
    view: str | None = None
    sink: str | None = None
    done: int = 0
    total: int | None = None


OnProgress = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """For callers that show no progress."""
