"""What a proof found: per view and sink, how many keys differ and how, and some of them by name.

In: counts and keys. Out: frozen values and their JSON. Keys are shown to whoever asked; they never go to a log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.lsn import format_lsn
from sinks.protocol import Unfit


class Difference(enum.Enum):
    """How a key differs."""

    DUPLICATE = "duplicate"
    DIFFERENT = "different"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True)
class Example:
    """A differing key: its columns as Postgres prints them."""

    difference: Difference
    key: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ViewProof:
    """A view in one sink against the source, both at `lsn`; `rows` are the source's.

    `missing` is no failure where `may_expire`: the sink drops entries by a TTL. `problem` says why nothing was
    compared, or why an equal content would prove nothing. `unfit` rows are lacking, as the sink itself says.
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

    @property
    def holds(self) -> bool:
        """Whether the sink was shown to equal the source."""
        missing = 0 if self.may_expire and not self.unfit else self.missing
        return self.problem is None and not (missing or self.extra or self.different or self.duplicate)

    def to_json(self) -> dict[str, Any]:
        """For `prove --json`."""
        examples = [{"difference": each.difference.value, "key": dict(each.key)} for each in self.examples]
        return {
            "view": self.view,
            "sink": self.sink,
            "lsn": format_lsn(self.lsn),
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
        }


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
