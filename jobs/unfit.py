"""Rows with a value that its Delta type cannot hold, where they become dead letters: which of them each view lacks.

In: the unfit rows of a batch, and what the view lacked before. Out: what it lacks now, dead letters, and the changes in
which such rows are deletes. Keeps true: a view never shows an older version of a row that it lacks, its position says
which rows those are, and a row is written down before the view moves on without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cdc.errors import OperatorError
from cdc.log import get
from jobs.twins import is_twin
from sinks.protocol import AT, DELETE, OP, Position, Rejected, Unfit
from sinks.spec import ViewSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.batch import Target
    from jobs.dead_letters import DeadLetters

_log = get(__name__)

REASON: Final = "a value has no counterpart in its column's Delta type"


@dataclass(frozen=True, slots=True)
class Watch:
    """What a range is looked through for: keys by digest, and rows that fit no type, of which only so many may be.

    `unfit_max` is None where the first such row stops apply.
    """

    known: frozenset[str] = frozenset()
    unfit_max: int | None = None


STRICT: Final = Watch()


def digest(key: bytes) -> str:
    """What tells a row's key from others without saying it; Spark's sha2(key, 256)."""
    return hashlib.sha256(key).hexdigest()


def refused_by(spec: ViewSpec, unfit: Iterable[Unfit]) -> tuple[Unfit, ...]:
    """The rows that the view depends on in a column that does not fit."""
    reads = spec.reads
    return tuple(row for row in unfit if reads is None or not reads.isdisjoint(row.columns))


def deleted(changes: DataFrame, refused: Iterable[Unfit]) -> DataFrame:
    """The changes, in which these rows are deletes of their keys."""
    places = [row.at for row in refused]
    if not places:
        return changes
    from pyspark.sql import functions as F  # noqa: N812

    return changes.withColumn(OP, F.when(F.col(AT).isin(*places), F.lit(DELETE)).otherwise(F.col(OP)))


def lacking(before: Iterable[Unfit], touched: frozenset[str], refused: Iterable[Unfit]) -> tuple[Unfit, ...]:
    """What is lacked after a batch: what was before and has not changed since, and what the batch refused."""
    left = [row for row in before if row.key not in touched]
    return tuple(sorted((*left, *refused), key=lambda row: (row.lsn, row.at)))


def too_many(what: str, count: int, limit: int) -> OperatorError:
    """The error of more rows than may be lacking."""
    return OperatorError(
        f"{what} would lack {count} rows or more, of {limit} at most: {REASON}",
        "correct the rows at the source, make the column text, or raise apply.dead_letters_max; then run apply again",
        code="DEAD_LETTERS",
    )


class LackingRows:
    """What each target lacks, as its position says it; one apply process's knowledge, located anew with the sinks."""

    def __init__(self, dead_letters: DeadLetters, limit: int, *, tolerated: bool) -> None:
        self._dead_letters = dead_letters
        self._limit = limit
        self._tolerated = tolerated
        self._of: dict[Target, tuple[Unfit, ...]] = {}

    def locate(self, positions: Mapping[Target, Position | None]) -> None:
        """Know what the sinks say."""
        self._of = {target: position.unfit for target, position in positions.items() if position is not None}

    def watch(self, targets: Iterable[Target]) -> Watch:
        """What to look for in a range that goes into these targets."""
        known = frozenset(row.key for target in targets for row in self._of.get(target, ()))
        return Watch(known, self._limit if self._tolerated else None)

    def of(self, target: Target) -> tuple[Unfit, ...]:
        """The rows that it lacks."""
        return self._of.get(target, ())

    def marked(self, target: Target, position: Position) -> Position:
        """The position of a target that nothing was written to."""
        return replace(position, unfit=self.of(target))

    def withhold(
        self, target: Target, refused: tuple[Unfit, ...], touched: frozenset[str], *, replaced: bool
    ) -> tuple[Unfit, ...]:
        """Write down what a batch refuses; what the target lacks after it. OperatorError when that is too much."""
        before = self._of.get(target, ())
        after = lacking(() if replaced else before, touched | {row.key for row in refused}, refused)
        if len(after) > self._limit and refused:
            raise too_many(f"view {target.view}", len(after), self._limit)
        written = {row.at for row in before}
        news = [Rejected(row.at, row.lsn, REASON, row.columns) for row in refused if row.at not in written]
        if not is_twin(target):
            self._dead_letters.write(target, news)
        return after

    def settle(self, target: Target, after: tuple[Unfit, ...]) -> None:
        """The target has moved on."""
        healed = {row.key for row in self._of.get(target, ())} - {row.key for row in after}
        if healed:
            _log.info("rows fit again or are gone", view=target.view, sink=target.sink, rows=len(healed))
        self._of[target] = after
