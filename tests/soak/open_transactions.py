"""How long proofs keep a transaction open on the source, at most: looked at many times a second."""

from __future__ import annotations

import threading
from types import TracebackType

from cdc.postgres import connect
from cdc.settings import Settings

LOOK_S = 0.05
OPEN = (
    "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0) FROM pg_stat_activity "
    "WHERE application_name = 'afterimage prove'"
)


class Transactions:
    """Use in a `with`: the longest transaction that proofs had open on the source."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.longest_s = 0.0

    def __enter__(self) -> Transactions:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        assert self._settings.source.admin is not None
        with connect(self._settings.source, self._settings.source.admin) as connection:
            while not self._stop.wait(LOOK_S):
                row = connection.execute(OPEN).fetchone()
                assert row is not None
                self.longest_s = max(self.longest_s, float(row[0]))
