"""What the capture machine needs of an encoder (cdc.envelope.TableEncoder is the one).

In: a change, or rows read from the table, with where they come from. Out: records in the order of their writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cdc.backfill import RowImage
from cdc.changes import Change, Origin, Record


class RecordEncoder(Protocol):
    """Encodes for one relation."""

    compiled: Any
    """What encodes plain changes many at a time, or None."""

    def change_records(self, change: Change, origin: Origin, ordinal: int, ts_ms: int) -> list[Record]:
        """The records of a change, in order; a key change takes `ordinal` and `ordinal + 1`."""
        ...

    def read_records(self, images: Sequence[RowImage], origin: Origin, ts_ms: int) -> list[Record]:
        """The records of rows that were read from the table."""
        ...
