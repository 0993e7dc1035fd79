"""What is known of a relation's rows: keys, and which columns settle which others.

In: pairs of columns and keys. Out: what follows from them. Keeps true: only what holds for every content of the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jobs.plan.nodes import Attribute

Attributes = frozenset[Attribute]


@dataclass(frozen=True, slots=True)
class Key:
    """Columns that no two rows share, and why."""

    columns: Attributes
    why: str


@dataclass(frozen=True, slots=True)
class Facts:
    """`settles` are pairs: rows that agree on the first agree on the second. `filled` columns are never NULL."""

    keys: tuple[Key, ...] = ()
    settles: tuple[tuple[Attributes, Attributes], ...] = ()
    filled: Attributes = field(default=frozenset())

    def closure(self, columns: Iterable[Attribute]) -> set[Attribute]:
        """All columns that these settle."""
        found, grown = set(columns), True
        while grown:
            grown = False
            for given, settled in self.settles:
                if given <= found and not settled <= found:
                    found |= settled
                    grown = True
        return found

    def key_within(self, columns: Iterable[Attribute]) -> Key | None:
        """The key that these columns settle, so that they are unique themselves."""
        found = self.closure(columns)
        return next((key for key in self.keys if key.columns <= found), None)


def minimal(found: Facts, columns: Sequence[Attribute]) -> tuple[tuple[Attribute, ...], str] | None:
    """A smallest key among these columns, the first ones rather than the later, and why it is one."""
    if found.key_within(columns) is None:
        return None
    left = list(columns)
    for column in reversed(columns):
        fewer = [each for each in left if each != column]
        if found.key_within(fewer) is not None:
            left = fewer
    key = found.key_within(left)
    assert key is not None
    return tuple(left), key.why
