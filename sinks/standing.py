"""What a store keeps beside a view's rows: which declaration they follow, their types, and where they stand.

In: fields read from the store. Out: a Standing, or None when they are missing or another's. Keeps true: a position
never moves back within a generation, and rows of other types are never mixed into a generation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from cdc.errors import OperatorError, TransientError
from sinks.position import parse_position, position_fields
from sinks.protocol import Position
from sinks.values import check_types

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Standing:
    """One generation of a view in a store; `types` are Spark's names of the columns' types."""

    view: str
    generation: int
    declaration: str
    types: Mapping[str, str]
    position: Position

    def fields(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        own = {"view": self.view, "generation": self.generation, "declaration": self.declaration}
        return {**own, "types": dict(self.types), **position_fields(self.position)}

    def moved(self, position: Position) -> Standing:
        """The same rows at a later position; a late, older one changes nothing."""
        return self if position.lsn < self.position.lsn else replace(self, position=position)

    def require_types(self, found: Mapping[str, str]) -> None:
        """Refuse a batch whose columns have other types than the rows that are there."""
        for name, kind in found.items():
            if self.types.get(name) != kind:
                message = f"view {self.view}: column {name} was {self.types.get(name)} and is now {kind}"
                raise OperatorError(message, f"run: afterimage rebuild {self.view}", code="VIEW_CHANGED")


def parse_standing(fields: Mapping[str, Any], view: str, declaration: str) -> Standing | None:
    """The standing among stored fields; None when it is not of this view as it is declared now."""
    position = parse_position(fields)
    if position is None or fields.get("view") != view or fields.get("declaration") != declaration:
        return None
    return Standing(view, int(fields["generation"]), declaration, fields["types"], position)


def column_types(frame: Any, columns: Sequence[str]) -> dict[str, str]:
    """The types of the view's columns in a DataFrame."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    kept = {name: types[name] for name in columns}
    check_types(kept)
    return kept


def new_generation(known: Iterable[int]) -> int:
    """A number above the known ones, by the clock: what a store's former life left is never of it."""
    return max([time.time_ns() // 1_000_000, *(each + 1 for each in known)])


def lost(store: str, view: str) -> TransientError:
    """The error of whoever finds a view's rows gone: the next look at the position finds None and loads it anew."""
    message = f"view {view}: its rows in {store} went away"
    return TransientError(message, "they are loaded anew; if it happens again, see who deletes them", code="SINK_LOST")


def overtaken(store: str, view: str) -> TransientError:
    """The error of a writer that finds the store elsewhere than it left it: its changes fit nothing else."""
    message = f"view {view}: another process has written it in {store} meanwhile"
    hint = "one apply process runs a pipeline; this one looks anew where the views stand, if it still is that one"
    return TransientError(message, hint, code="SINK_OVERTAKEN")


class Located(Generic[Found]):
    """What a process knows of a view in a store, and so what its next write must find there again."""

    def __init__(self, store: str, view: str) -> None:
        self._store = store
        self._view = view
        self._known: tuple[Found | None] | None = None

    def take(self, found: Found | None) -> None:
        """Know this: it was just looked at, or written."""
        self._known = (found,)

    def require(self, found: Found | None) -> None:
        """Raise unless `found` is what is known; the first look makes it known."""
        if self._known is None:
            self.take(found)
        elif self._known != (found,):
            raise overtaken(self._store, self._view)
