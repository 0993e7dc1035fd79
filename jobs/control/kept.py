"""What the control topic says of views without anybody asking: the newest record of each kind and view is kept there.

In: JSON objects, or frozen values. Out: the other. Keeps true: no record's key is a request's id; counts, SQL and
reasons alone, no key and no value of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from cdc.lsn import format_lsn, parse_lsn

STOPPED: Final = "stopped"
REBUILDING: Final = "rebuilding"
DECLARED: Final = "declared"
UNSHOWN: Final = "unshown"
LEFT: Final = "left"
PROVED: Final = "proved"


@dataclass(frozen=True, slots=True)
class Proved:
    """How the newest proof of a view in one sink ended; it stays."""

    view: str
    sink: str
    ts_ms: int
    lsn: int
    holds: bool
    rows: int
    differences: int
    seconds: float
    problem: str | None = None

    @property
    def id(self) -> str:
        """The record's key."""
        return f"{PROVED} {self.sink} {self.view}"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a view stands behind the others; it stays until the view follows again, and is withdrawn then."""

    view: str
    ts_ms: int
    code: str
    message: str
    remedy: str

    @property
    def id(self) -> str:
        """The record's key."""
        return f"{STOPPED} {self.view}"


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """How far a rebuild is, from 0 to 1, and how many seconds it may still take; withdrawn when it is over."""

    view: str
    ts_ms: int
    doing: str
    progress: float
    left_s: float | None

    @property
    def id(self) -> str:
        """The record's key."""
        return f"{REBUILDING} {self.view}"


@dataclass(frozen=True, slots=True)
class Declared:
    """The view file, to the letter, that a view's live rows follow: its file may say something else by now."""

    view: str
    text: str

    @property
    def id(self) -> str:
        """The record's key."""
        return f"{DECLARED} {self.view}"


@dataclass(frozen=True, slots=True)
class Unshown:
    """Why what a changed file declares could not be loaded, so that the former one goes on; withdrawn when it can."""

    view: str
    ts_ms: int
    code: str
    message: str
    remedy: str

    @property
    def id(self) -> str:
        """The record's key."""
        return f"{UNSHOWN} {self.view}"


@dataclass(frozen=True, slots=True)
class Left:
    """A sink that a view's file names no more, though it holds rows; withdrawn when it is named again, or dropped."""

    view: str
    sink: str

    @property
    def id(self) -> str:
        """The record's key."""
        return f"{LEFT} {self.sink} {self.view}"


Kept = Proved | Stopped | Rebuilding | Declared | Unshown | Left
_TYPES: Final[Mapping[type[Kept], str]] = {
    Proved: PROVED,
    Stopped: STOPPED,
    Rebuilding: REBUILDING,
    Declared: DECLARED,
    Unshown: UNSHOWN,
    Left: LEFT,
}


def kept_fields(record: Kept) -> dict[str, Any]:
    """Ready for JSON."""
    lsn = {"lsn": format_lsn(record.lsn)} if isinstance(record, Proved) else {}
    return {"type": _TYPES[type(record)], **asdict(record), **lsn}


def parse_kept(fields: Mapping[str, Any]) -> Kept | None:
    """The record; None for another type, ValueError, TypeError or KeyError for what is none."""
    match fields["type"]:
        case "proved":
            return _proved(fields)
        case "stopped" | "unshown" as kind:
            made = Stopped if kind == STOPPED else Unshown
            texts = (text(fields[each]) for each in ("code", "message", "remedy"))
            return made(text(fields["view"]), integer(fields["ts_ms"]), *texts)
        case "rebuilding":
            left_s = fields["left_s"]
            return Rebuilding(
                text(fields["view"]),
                integer(fields["ts_ms"]),
                text(fields["doing"]),
                number(fields["progress"]),
                None if left_s is None else number(left_s),
            )
        case "declared":
            return Declared(text(fields["view"]), text(fields["text"]))
        case "left":
            return Left(text(fields["view"]), text(fields["sink"]))
        case _:
            return None


def _proved(fields: Mapping[str, Any]) -> Proved:
    problem = fields["problem"]
    return Proved(
        view=text(fields["view"]),
        sink=text(fields["sink"]),
        ts_ms=integer(fields["ts_ms"]),
        lsn=parse_lsn(text(fields["lsn"])),
        holds=bool(fields["holds"]),
        rows=integer(fields["rows"]),
        differences=integer(fields["differences"]),
        seconds=number(fields["seconds"]),
        problem=None if problem is None else text(problem),
    )


def integer(value: object) -> int:
    """The value, which is a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not an integer")
    return value


def number(value: object) -> float:
    """The value, which is a finite number from 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise TypeError("not a number")
    return float(value)


def text(value: object) -> str:
    """The value, which is a text."""
    if not isinstance(value, str):
        raise TypeError("not text")
    return value
