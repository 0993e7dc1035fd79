"""Which way leads from the rows that something was computed from to those that a table holds now.

In: the rows known, those held now, and those that the batch moved on from. Out: a Way. Keeps true: the cheaper ways are
taken only where they lead to the very rows; what cannot be told leads anew.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from sinks.delta.held import Held


class Way(enum.Enum):
    """From known rows to present ones."""

    STAY = "stay"
    """They are the same."""
    BATCH = "batch"
    """By the changes that the batch wrote."""
    COMPARE = "compare"
    """By comparing two versions of the table, while both are there."""
    ANEW = "anew"


def way(known: Held | None, now: Held, before: Held | None) -> Way:
    """The cheapest; `before` is what the table held when the batch began to write it."""
    if known is None:
        return Way.ANEW
    if now.has_rows_of(known):
        return Way.STAY
    if before is not None and before.generation == now.generation and before.has_rows_of(known):
        return Way.BATCH
    return Way.COMPARE if now.continues(known) else Way.ANEW


def readable(known: Held, now: Held, before: Held | None) -> Held:
    """The newest state that has the known rows: files of an older one may have been tidied away."""
    return {Way.STAY: now, Way.BATCH: before or known}.get(way(known, now, before), known)


def noted(now: Mapping[str, Held]) -> dict[str, tuple[int, ...]]:
    """What a position says of the rows that its own were computed from."""
    return {name: held.numbers for name, held in now.items()}


def is_unchanged(known: Mapping[str, Held | None], now: Mapping[str, Held]) -> bool:
    """Whether all relations hold what they held."""
    return all(held.has_rows_of(known.get(name)) for name, held in now.items())
