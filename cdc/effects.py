"""What the capture machine asks of the world, one value per wish, and what it is answered.

The machine yields these; a driver carries them out against real servers, the simulation against models that fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc.backfill import Backfill, Chunk
from cdc.changes import Change, Record, Relation
from cdc.merging import NOTHING, Fed
from cdc.progress import Progress


@dataclass(frozen=True, slots=True)
class Poll:
    """Read what the walsender has sent, waiting up to `wait_s` for the first byte. Answer: Polled.

    `far_behind`: nobody waits for the last milliseconds.
    """

    wait_s: float
    far_behind: bool = False


@dataclass(frozen=True, slots=True)
class Polled:
    """Frames in order; `drained` when no more was there; a steady clock for intervals, the wall clock for stamps.

    `fed` is what readers of tables had brought after the frames were read.
    """

    frames: Sequence[bytes]
    drained: bool
    now_s: float
    wall_ms: int
    fed: Fed = NOTHING


@dataclass(frozen=True, slots=True)
class Complete:
    """Read the row's unchanged TOAST values from the source. Answer: the Change, None when the row is gone, or Left."""

    change: Change
    lsn: int


@dataclass(frozen=True, slots=True)
class Announce:
    """Put the relation's schema record into the open Kafka transaction: rows of this shape follow.

    Answer: None, or Left when rows of this shape can't follow; the schema record then says why.
    """

    relation: Relation
    lsn: int


@dataclass(frozen=True, slots=True)
class Left:
    """The table stops alone here: its topic gets nothing that commits at this transaction or later."""

    topic: str


@dataclass(frozen=True, slots=True)
class Produce:
    """Add records to the open Kafka transaction, opening one if there is none. No answer."""

    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Seal:
    """Wait until the broker has every record. Answer: topic -> partition -> offset after its last record."""


Ends = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the progress record into the transaction and commit it. Answer: when it was durable, by Polled's clock."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class Confirm:
    """Tell Postgres that everything before `lsn` is safe; with `ask_reply` it answers with where its log stands."""

    lsn: int
    ask_reply: bool = False


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Read this table in chunks from `backfill.done` on; its changes are remembered from here. No answer."""

    backfill: Backfill


@dataclass(frozen=True, slots=True)
class Settle:
    """The chunk is in the open Kafka transaction, or must be read once more (`again`). No answer."""

    chunk: Chunk
    again: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """A table's last chunk is in the open Kafka transaction, or it was given up: say so there. No answer."""

    backfill: Backfill
    failure: str | None
    lsn: int


Effect = Poll | Complete | Announce | Produce | Seal | Commit | Confirm | ReadTable | Settle | Finish
