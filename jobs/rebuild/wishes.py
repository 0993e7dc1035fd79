"""What is to be loaded beside and shown: views that somebody wants anew, and those whose files have changed.

In: requests, and the groups of views that are coming. Out: wishes in the order in which they are fulfilled, and why one
can't be. Keeps true: whoever asks for a view whose file has changed waits for what the file says, and for no load of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cdc.changes import Trouble
from cdc.progress import Progress
from jobs.batch import is_stopped
from jobs.control import Request
from jobs.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Wish:
    """Views that are shown at once; the requests of those who wait for it. One that `is_change` nobody has to ask."""

    id: str
    views: tuple[str, ...]
    requests: tuple[Request, ...] = ()
    is_change: bool = False

    @property
    def prove(self) -> bool:
        """Whether what is loaded is proved before it is shown."""
        return any(request.prove for request in self.requests)


def wishes(requests: Iterable[Request], changed: Iterable[tuple[str, ...]]) -> dict[str, Wish]:
    """By id: what is asked for, in the order of asking, then the other changes."""
    changes = {view: Wish(f"changed {' '.join(group)}", group, is_change=True) for group in changed for view in group}
    found: dict[str, Wish] = {}
    for request in requests:
        view = request.view or ""
        wish = changes.get(view, Wish(request.id, (view,)))
        wish = found.get(wish.id, wish)
        found[wish.id] = replace(wish, requests=(*wish.requests, request))
    return found | {wish.id: wish for wish in changes.values() if wish.id not in found}


def obstacle(view: str, live: Pipeline, boundary: Progress | None) -> Trouble | None:
    """Why a view can't be rebuilt, if so."""
    if view not in live.specs and view not in live.coming.specs:
        return Trouble("UNKNOWN_VIEW", f"there is no view {view}", "is its view file the same where apply runs?")
    sinks = (*live.sinks, *live.coming.sinks)
    if boundary is not None and any(each.view == view and is_stopped(each, boundary) for each in sinks):
        return Trouble("TABLE_STOPPED", f"the table of {view} has stopped", "`afterimage status` says what to do")
    return None
