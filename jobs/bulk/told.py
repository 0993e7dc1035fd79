"""How far the reading of a large range is, in the log now and then.

In: how many records there are, and how many more were read. Out: a line every few seconds, none for what is soon done.
"""

from __future__ import annotations

import time
from typing import Final

from cdc.log import get

_log = get(__name__)

_EVERY_S: Final = 5.0


class Told:
    """Of one range; `what` names it."""

    def __init__(self, event: str, records: int, **what: str) -> None:
        self._event = event
        self._records = records
        self._what = what
        self._read = 0
        self._told_s = time.monotonic()

    def on_read(self, count: int) -> None:
        """So many records more."""
        self._read += count
        if time.monotonic() - self._told_s > _EVERY_S:
            self._told_s = time.monotonic()
            _log.info(self._event, **self._what, records_read=self._read, records=self._records)
