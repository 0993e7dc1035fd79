"""How a query was refreshed last: for the log, metrics, the ledger and `status`."""

from __future__ import annotations

import enum
import json
from dataclasses import asdict, dataclass
from typing import Any


class How(enum.Enum):
    """Which way a refresh took."""

    UNCHANGED = "unchanged"
    """Nothing that it reads had changed."""
    INCREMENTAL = "incremental"
    TALLIED = "tallied"
    """By the changed rows alone, added to the results of their groups and taken from them."""
    FULL = "full"
    """Computed anew and compared."""
    LOADED = "loaded"
    """Computed anew and put in the place of what there was, if anything."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`why` it was not incremental; `keys` were affected, `rows` were written."""

    how: How
    why: str | None
    keys: int | None
    rows: int
    seconds: float

    def fields(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "how": self.how.value, "seconds": round(self.seconds, 3)}

    @classmethod
    def from_json(cls, text: str) -> Outcome | None:
        """What fields() gave, as JSON; None for anything else."""
        try:
            fields = json.loads(text)
            return cls(**{**fields, "how": How(fields["how"])})
        except (KeyError, TypeError, ValueError):
            return None

    def __str__(self) -> str:
        """For people."""
        keys = f", {self.keys:,} keys" if self.keys is not None else ""
        why = f" ({self.why})" if self.why else ""
        return f"{self.how.value}{why}{keys}, {self.rows:,} rows, {self.seconds:.1f} s"
