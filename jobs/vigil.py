"""What no batch would notice: a store that was emptied while nothing is written, a view's file that was changed.

In: sinks and where they stand, the folder of the views. Out: a TransientError for what is lost, or word of a change.
It looks every two seconds at most.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cdc.settings import Settings
from jobs.batch import TABLE, Target
from jobs.ledger import Ledger
from jobs.recording import require_kept
from jobs.view_files import FolderState, folder_state
from sinks.protocol import Sink
from sinks.standing import lost

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

    def begin(self) -> None:
        """The view files are about to be read."""
        self._files = folder_state(self._settings.views)

    def sees_other_files(self) -> bool:
        """Whether a view's file is not what it was then."""
        if time.monotonic() - self._files_at_s < _EVERY_S:
            return False
        self._files_at_s = time.monotonic()
        return folder_state(self._settings.views) != self._files

    def require_stores(self, going: Mapping[Target, Sink], lsn: int) -> None:
        """While nothing is to be written, nothing else would find out that a store was emptied."""
        if time.monotonic() - self._stores_at_s < _EVERY_S:
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda target: require_kept(target, going[target], lsn), going))
        if any(target.sink == TABLE for target in going) and self._ledger.read() is None:
            raise lost("the ledger", self._settings.pipeline)
        self._stores_at_s = time.monotonic()
