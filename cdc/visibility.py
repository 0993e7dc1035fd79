"""Which transactions a snapshot of Postgres sees, by their ids.

In: what pg_current_snapshot() prints, and transaction ids as the log has them (32 bits, no epoch). Out: seen or not.
Keeps true: what one snapshot sees, every later one sees too, so a transaction seen once needs no more thought.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdc.errors import ProtocolError

_SPAN: Final = 1 << 32
_HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Visibility:
    """`xmax` and later are not seen, nor are those `running`: they had not ended, or not visibly so."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @staticmethod
    def parse(text: str) -> Visibility:
        """From `xmin:xmax:xid,xid,..`, each with its epoch."""
        try:
            xmin, xmax, running = text.split(":")
            return Visibility(int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))
        except ValueError as error:
            raise ProtocolError("Postgres printed a snapshot that is none") from error

    def sees(self, xid: int) -> bool:
        """Whether the changes of a committed transaction are visible."""
        full = self._with_epoch(xid)
        return full < self.xmax and full not in self.running

    def sees_until(self, xid: int) -> bool:
        """Whether every committed transaction up to this one is visible."""
        return self._with_epoch(xid) < self.xmin

    def is_before(self, other: Visibility) -> bool:
        """Whether this snapshot is the older one: one server's snapshots only ever see more."""
        return (self.xmax, -len(self.running)) < (other.xmax, -len(other.running))

    def _with_epoch(self, xid: int) -> int:
        """Ids that are in use lie within 2^31 of each other."""
        full = (self.xmax & -_SPAN) | xid
        if full - self.xmax >= _HALF:
            return full - _SPAN
        return full + _SPAN if self.xmax - full > _HALF else full


def newest(left: int, right: int) -> int:
    """The younger of two ids without epoch."""
    return left if (left - right) % _SPAN < _HALF else right
