"""One request to the running apply, or where none runs to one that runs for as long as it takes, and its answer.

In: what is asked for. Out: the answer; how far it is, on the way. Interrupting the command withdraws the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cdc.settings import Settings
from jobs.control import Answer, ControlClient, Kind, State, apply_owner

_SILENCE_S: Final = 600.0


def ask_apply(
    settings: Settings,
    kind: Kind,
    view: str,
    on_progress: Callable[[Answer], None] | None = None,
    *,
    prove: bool = False,
) -> Answer:
    """Ask it of one view, and wait until it is done."""
    with ControlClient(settings) as client, client.keep(kind, view=view, prove=prove) as kept:
        if apply_owner(settings) is None:
            from cdc.cli.applying import apply_once_here

            apply_once_here(settings)
        return client.await_answer(kept.id, {State.DONE}, _SILENCE_S, on_progress)
