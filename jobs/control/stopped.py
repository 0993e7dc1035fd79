"""Views over several tables that stand behind the others, told to whoever looks: status, wait, prove.

In: the troubles of apply's failing views. Out: records on the control topic, withdrawn once a view follows again; read
back as troubles. Keeps true: what a process that was killed has told is withdrawn by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from cdc.changes import Trouble
from cdc.settings import Settings
from jobs.control.kept import Kept, Stopped
from jobs.control.proved import kept_records
from jobs.control.records import Withdrawn
from jobs.control.server import ControlServer


class StoppedViews:
    """What apply has told of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._told: dict[str, Trouble] | None = None

    def tell(self, control: ControlServer, troubles: Mapping[str, Trouble]) -> None:
        """Write down what is new, and withdraw what is over."""
        if self._told is None:
            self._told = troubles_of(kept_records(self._settings))
        for view, trouble in troubles.items():
            if self._told.get(view) != trouble:
                record = Stopped(view, time.time_ns() // 1_000_000, trouble.code, trouble.message, trouble.remedy)
                control.keep(record)
        for view, trouble in self._told.items():
            if view not in troubles:
                control.keep(Withdrawn(Stopped(view, 0, trouble.code, trouble.message, trouble.remedy).id))
        self._told = dict(troubles)


def stopped_views(settings: Settings) -> dict[str, Trouble]:
    """Why each of them has stopped."""
    return troubles_of(kept_records(settings))


def troubles_of(records: Iterable[Kept]) -> dict[str, Trouble]:
    """The same of records that were read."""
    found = (record for record in records if isinstance(record, Stopped))
    return {record.view: Trouble(record.code, record.message, record.remedy) for record in found}
