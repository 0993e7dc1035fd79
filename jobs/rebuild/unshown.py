"""What files declare and could not be shown: told on the control topic, and tried again after a while.

In: declarations that failed, and those that are coming. Out: what `status` shows; whether it is too early for another
load. Keeps true: what is told is withdrawn once it is shown, asked for again, or not what the files say any more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from cdc.changes import Trouble
from cdc.log import get
from jobs.control import ControlServer
from jobs.control.kept import Unshown
from jobs.control.records import Withdrawn
from sinks.spec import ViewSpec

_log = get(__name__)

_AGAIN_S: Final = 60.0
_AGAIN_TIMES: Final = 10
"""What failed is loaded again after a while, the longer the longer a load takes: its rows may be others then."""

Declared = frozenset[str]
"""Views with what they are declared as, and with their sinks."""


def declared(specs: Iterable[ViewSpec]) -> Declared:
    """What tells this declaration of these views from another one."""
    return frozenset(
        json.dumps([spec.name, spec.fingerprint, [[each.name, dict(each.options)] for each in spec.sinks]])
        for spec in specs
    )


class UnshownChanges:
    """Of one apply process."""

    def __init__(self, control: ControlServer) -> None:
        self._control = control
        self._told: dict[Declared, str] = {}
        """With the view that says so."""
        self._again_s: dict[Declared, float] = {}

    def tell(self, what: Declared, views: Sequence[str], trouble: Trouble, seconds: float) -> None:
        """It has failed, after so long."""
        self._told[what] = views[0]
        self._again_s[what] = time.monotonic() + _AGAIN_S + _AGAIN_TIMES * seconds
        ts_ms = time.time_ns() // 1_000_000
        self._control.keep(Unshown(views[0], ts_ms, trouble.code, trouble.message, trouble.remedy))
        said = {"code": trouble.code, "reason": trouble.message, "remedy": trouble.remedy}
        _log.error("changed view not shown", view=", ".join(views), **said)

    def waits(self, what: Declared) -> bool:
        """Whether it has failed, and it is too early for another load."""
        return time.monotonic() < self._again_s.get(what, 0.0)

    def keep(self, still: Collection[Declared]) -> None:
        """Withdraw what is not coming any more."""
        for what in [each for each in self._told if each not in still]:
            self.withdraw(what)

    def withdraw(self, what: Declared) -> None:
        """It is shown, or tried again at once."""
        self._again_s.pop(what, None)
        view = self._told.pop(what, None)
        if view is not None:
            self._control.keep(Withdrawn(Unshown(view, 0, "", "", "").id))
