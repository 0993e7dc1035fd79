"""What the tables of a refresh are called in Spark: each relation as it is now, as it was, and what changed between.

In: a view's relations. Out: names of temporary views, which whoever runs a refresh makes in a session of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

OLD = "o"
NEW = "n"
"""`changed` has one row for each changed key: the row before and the row after as structs of the relation's columns,
null where there was none."""

KEYS = "affected"
"""The affected keys, once they are there; its columns are called as the attributes."""


class State(enum.Enum):
    """When a relation is read."""

    NOW = "now"
    BEFORE = "before"
    CHANGED = "changed"


class Tables:
    """The names for one view's relations."""

    def __init__(self, relations: Iterable[str], prefix: str = "") -> None:
        self._number = {relation: at for at, relation in enumerate(sorted(relations))}
        self._prefix = prefix

    @property
    def relations(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._number)

    def name(self, relation: str, state: State) -> str:
        """The temporary view's name; what is no relation of these has one of its own."""
        number = self._number.get(relation)
        return relation if number is None else f"{self._prefix}{state.value}_{number}"
