"""What is to be loaded beside and shown: views that somebody wants anew, and those whose files have changed.

In: requests, and the groups of views that are coming. Out: wishes in the order in which they are fulfilled. Keeps true:
whoever asks for a view whose file has changed waits for what the file says, and for no load of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.control import Request


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
