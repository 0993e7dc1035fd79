"""Where in a transaction's spool each of its subtransactions begins, so that one rolled back can be cut off.

In: the xid of each message, and aborts. Out: the mark to cut at. Keeps true: what is cut is what was rolled back: while
a subtransaction lives only it and its own write, and they have higher xids; so all that began after it goes with it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

_XIDS: Final = 1 << 32  # xids wrap around


class Subtransactions:
    """Twelve bytes for each; a transaction may have millions."""

    __slots__ = ("_begins", "_numbers", "_xid")

    def __init__(self, xid: int) -> None:
        self._xid = xid
        # In ascending order; a number is the distance from the transaction's own xid.
        self._numbers = array("I")
        self._begins = array("Q")

    def enter(self, xid: int, mark: int) -> None:
        """A message of `xid` is about to be kept at `mark`."""
        number = (xid - self._xid) % _XIDS
        at = bisect_left(self._numbers, number)
        if number and (at == len(self._numbers) or self._numbers[at] != number):
            self._numbers.insert(at, number)
            self._begins.insert(at, mark)

    def abort(self, xid: int) -> int | None:
        """The mark from which on everything was rolled back; None when nothing of it has come."""
        at = bisect_left(self._numbers, (xid - self._xid) % _XIDS)
        if at == len(self._numbers):
            return None
        mark = min(self._begins[at:])
        del self._numbers[at:], self._begins[at:]
        return mark
