"""How a query was refreshed last: for the log, metrics, the ledger and `status`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


class How(enum.Enum):
    """Which way a refresh took."""

    UNCHANGED = "unchanged"
    """Nothing that it reads had changed."""
    INCREMENTAL = "incremental"
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
    def of(cls, fields: Mapping[str, Any] | None) -> Outcome | None:
        """What fields() gave; None for anything else."""
        try:
            return cls(**{**fields, "how": How(fields["how"])}) if fields else None
        except (KeyError, TypeError, ValueError):
            return None
