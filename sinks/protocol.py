"""What a sink is: a place that holds a view's rows and knows, by itself, at which position they stand.

In: a Spark DataFrame with one row per key: the view's columns and OP, LSN and AT. Out: a durable write, then the
position. Keeps true: writes are repeatable and order-proof, `replace` is seen whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

OP: Final = "__op"
LSN: Final = "__lsn"
AT: Final = "__at"
CONTROL_COLUMNS: Final = (OP, LSN, AT)
UPSERT: Final = "u"
DELETE: Final = "d"

MEND_KEYS_MAX: Final = 1_000
"""Keys of one `mend`."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A row that a view lacks, since `columns` have values that fit no Delta type: its key's digest, its place."""

    key: str
    at: str
    lsn: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a view stands, from which offsets to read on (topic -> offset per partition), and which rows it lacks."""

    lsn: int
    source_ts_us: int
    offsets: Mapping[str, tuple[int, ...]]
    unfit: tuple[Unfit, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is refused: where it is in Kafka and why, without its values; `columns` where they are known."""

    at: str
    lsn: int
    reason: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did."""

    upserts: int = 0
    deletes: int = 0
    rejected: tuple[Rejected, ...] = field(default=())


class Sink(Protocol):
    """One view in one store. DataFrames are `pyspark.sql.DataFrame`; executors run only pure code and plain clients."""

    @property
    def name(self) -> str:
        """`delta`, `search`, `cache` or `kafka`."""
        ...

    def position(self) -> Position | None:
        """Where the stored rows stand; None when the sink is empty, lost or of another declaration: replace it."""
        ...

    def write(self, changes: Any, position: Position) -> Written:
        """Apply upserts and deletes, durably, then move to `position`. A repeat changes nothing."""
        ...

    def replace(self, rows: Any, position: Position) -> Written:
        """Make `rows` (all upserts) the whole content in one atomic step; readers see the old rows until then."""
        ...

    def advance(self, position: Position) -> None:
        """Move to `position` when the batch held no change of this view."""
        ...

    def mend(self, changes: Any, position: Position) -> Written:
        """Put at most MEND_KEYS_MAX keys right where the sink stands, at `position`, whatever is stored of them."""
        ...

    def types(self) -> Mapping[str, str]:
        """The columns' types as they are stored, by Spark's names."""
        ...

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every stored row, as the view's columns in order, as native Python values; for prove."""
        ...

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        """The same of the keys in this Arrow table, which has the key columns in `types`; others may come as well."""
        ...


@runtime_checkable
class SwappedSink(Sink, Protocol):
    """A sink whose rows can be loaded beside those that readers see."""

    def beside(self) -> Sink:
        """An empty sink of the same view that no reader sees, and whose position this process alone knows."""
        ...

    def adopt(self, loaded: Sink, position: Position) -> None:
        """Show what the sink beside holds in one atomic step, at `position`; readers see the old rows until then."""
        ...

    def supersede(self, former: Sink | None, loaded: Sink, position: Position) -> None:
        """The same where readers see the rows of another declaration until then, in its sink, or none at all."""
        ...

    def clear(self) -> None:
        """Remove what killed loads left beside."""
        ...
