"""What our commits say about themselves, and which position follows from it.

In: a commit's `userMetadata`, the ledger's row. Out: a Stamp, a position. Keeps true: a table stands where its own
newest stamped commit says, or further on only where the ledger names exactly the version that the table still has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sinks.position import load_position, position_json
from sinks.protocol import Position, Unfit

MARK: Final = "afterimage"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Stamp:
    """The metadata of a commit that moved a view."""

    view: str
    generation: int
    fingerprint: str
    position: Position
    history: Mapping[str, Any] = field(default_factory=dict)
    """What the log of a table's changes says of itself (sinks.history); nothing in other tables."""

    def to_json(self) -> str:
        """The commit's `userMetadata`."""
        own = {MARK: VERSION, "view": self.view, "generation": self.generation, "fingerprint": self.fingerprint}
        return position_json(self.position, **own, **({"history": dict(self.history)} if self.history else {}))

    @classmethod
    def from_json(cls, text: str | None) -> Stamp | None:
        """The stamp in `userMetadata`; None for anyone else's commit."""
        loaded = load_position(text)
        if loaded is None or loaded[1].get(MARK) != VERSION:
            return None
        position, fields = loaded
        try:
            view, generation, fingerprint = (fields[name] for name in ("view", "generation", "fingerprint"))
            return cls(str(view), int(generation), str(fingerprint), position, fields.get("history", {}))
        except (KeyError, TypeError, ValueError):
            return None


def app_id(pipeline: str, view: str) -> str:
    """The application id under which Delta counts our commits; it takes each number once."""
    return f"{pipeline}/{view}"


class LedgerLine(Protocol):
    """What the ledger says of one table."""

    @property
    def version(self) -> int: ...
    @property
    def lsn(self) -> int: ...
    @property
    def source_ts_us(self) -> int: ...
    @property
    def offsets(self) -> Mapping[str, tuple[int, ...]]: ...
    @property
    def unfit(self) -> tuple[Unfit, ...]: ...


def vouched(own: Position | None, own_version: int | None, line: LedgerLine | None) -> Position | None:
    """Where a table stands: `own` is its newest stamp's position, `own_version` its version now.

    The ledger moves a table without changes on, but only the very version that it names; None stays None.
    """
    if own is None or line is None or line.version != own_version or line.lsn <= own.lsn:
        return own
    return Position(line.lsn, line.source_ts_us, {**own.offsets, **line.offsets}, line.unfit)
