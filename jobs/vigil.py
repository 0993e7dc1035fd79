"""What no batch would notice: a store emptied while nothing is written, a view's file changed, a capture that is gone.

In: sinks and where they stand, the folder of the views. Out: an error for what is lost or silent, or word of a change.
It looks every two seconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cdc.errors import OperatorError
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.batch import TABLE, Target
from jobs.ledger import Ledger
from jobs.recording import require_kept
from jobs.view_files import FolderState, folder_state
from sinks.protocol import Sink
from sinks.standing import lost

CAPTURE_SILENT_S: Final = 60.0
_EVERY_S: Final = 2.0
_THREADS: Final = 8


class Vigil:
    """Of one apply process."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._files: FolderState = ()
        self._files_at_s = 0.0
        self._stores_at_s = 0.0
        self._heard: tuple[int, float] = (0, 0.0)

    def begin(self) -> None:
        """The view files are about to be read."""
        self._files = folder_state(self._settings.views)

    def sees_other_files(self, *, at_once: bool = False) -> bool:
        """Whether a view's file is not what it was then."""
        if not at_once and time.monotonic() - self._files_at_s < _EVERY_S:
            return False
        self._files_at_s = time.monotonic()
        return folder_state(self._settings.views) != self._files

    def require_capture(self, lsn: int, until_lsn: int) -> None:
        """Whoever waits for capture to get to an LSN from where it is hears when it does not move."""
        now_s = time.monotonic()
        if lsn != self._heard[0]:
            self._heard = lsn, now_s
        elif now_s - self._heard[1] > CAPTURE_SILENT_S:
            raise OperatorError(
                f"capture stands at {format_lsn(lsn)} and has not come to {format_lsn(until_lsn)}",
                "does it run? `afterimage status`; start it: afterimage capture",
                code="CAPTURE_SILENT",
            )

    def require_stores(self, going: Mapping[Target, Sink], lsn: int) -> None:
        """While nothing is to be written, nothing else would find out that a store was emptied."""
        if time.monotonic() - self._stores_at_s < _EVERY_S:
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda target: require_kept(target, going[target], lsn), going))
        if any(target.sink == TABLE for target in going) and self._ledger.read() is None:
            raise lost("the ledger", self._settings.pipeline)
        self._stores_at_s = time.monotonic()
